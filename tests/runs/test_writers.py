import json
import struct
from contextlib import contextmanager

import pytest

from dml.runs import exports
from dml.runs.rows import jsonl
from dml.runs.writers import (
    UNCOUNTED,
    Writer,
    console,
    line,
    rank_0_writer,
    scaled_cell,
    summary_table,
    table,
    tables,
    training_sentence,
)


@contextmanager
def keep(log, name):
    log.append((name, "opened"))
    try:
        yield Writer(
            lambda row: log.append((name, row)),
            lambda summary: log.append((name, summary)),
        )
    finally:
        log.append((name, "closed"))


def test_rank_0_passes_rows_and_summary_to_all_and_closes_all_when_one_fails():
    for rank in (0, 1, 7):
        log = []
        both = keep(log, "a"), keep(log, "b")
        with pytest.raises(KeyError), rank_0_writer(rank, *both) as writer:
            writer.row({"step": 1})
            writer.summary({"loss": 2})
            raise KeyError
        for name in "ab":
            events = [event for one, event in log if one == name]
            written = ["opened", {"step": 1}, {"loss": 2}, "closed"]
            assert events == (written if rank == 0 else [])


def test_rows_are_in_the_file_before_it_is_closed(tmp_path):
    with jsonl(tmp_path / "rows") as writer:
        for step in range(3):
            writer.row({"step": step, "loss": 0.1 * step})
        lines = (tmp_path / "rows").read_text().splitlines()
    assert [json.loads(line)["loss"] for line in lines] == [0, 0.1, 0.2]


def test_tables_fill_templates_and_show_a_dash_for_a_missing_number(capsys):
    columns = {
        "way": (6, "{way}"),
        "ms": (6, scaled_cell("seconds", 1e3, ".1f")),
        "gain": (5, "{gain:.1%}"),
        "both": (5, lambda row: f"{row['way']}!"),
    }
    with tables({"a": columns, "b": {"n": (3, "{n}")}}, {"b": "of {n}"}) as writer:
        writer.row({"table": "a", "way": "ring", "seconds": 0.0125, "gain": 0.5})
        writer.row({"table": "a", "way": "tree", "seconds": None, "gain": None})
        writer.row({"table": "b", "n": 30})
        writer.summary({"way": "none"})
    assert capsys.readouterr().out.splitlines() == [
        "way     ms      gain   both",
        "ring      12.5  50.0%  ring!",
        "tree         -      -  tree!",
        "",
        "of 30",
        "n",
        " 30",
    ]


@pytest.mark.parametrize("wide", [False, True])
def test_a_table_has_the_first_columns_that_fit_in_80_characters(wide, capsys):
    columns = {f"column {n}": (18, "{n}") for n in range(6)}
    with table(columns, wide, "a title " * 20) as writer:
        writer.row({"n": "x" * 18})
    *title, header, row = capsys.readouterr().out.splitlines()
    assert max(map(len, title)) <= 80
    assert len(header.split("column")) - 1 == (6 if wide else 4)
    assert len(row) == (118 if wide else 78)
    assert ("(2 more columns: --wide)" in title) != wide


def test_a_summary_fits_in_80_characters():
    summary = {f"a_long_name_of_a_number_{n}": 1 / 3 for n in range(4)}
    assert max(map(len, summary_table(summary).splitlines())) <= 80
    assert len(summary_table({"a": 1, "b": 2, "c": 3}).splitlines()) == 1
    assert summary_table({}) == ""


def test_the_sentence_of_a_training_names_virtual_seconds_and_uncounted_words():
    summary = {"steps": 100, "seconds": 7.11e-05, "loss": 0.5, "words_sent": 0}
    start = "Trained 100 updates in 7.11e-05"
    virtual = training_sentence(summary, virtual=True, ranks=4)
    assert virtual == f"{start} virtual seconds: loss 0.5. {UNCOUNTED}"
    assert training_sentence(summary) == f"{start} s: loss 0.5."
    counted = training_sentence(summary | {"words_sent": 8}, ranks=4)
    assert counted == f"{start} s: loss 0.5."


def test_the_console_prints_no_time_left_before_it_is_known(capsys):
    with console(3, unit="epoch") as writer:
        for loss in (2.0, 1.0):
            writer.row({"loss": loss})
    first, second = capsys.readouterr().out.splitlines()
    assert first == "epoch 1/3  loss 2.0000"
    assert second.startswith("epoch 2/3  loss 1.0000  ") and "s left" in second


def test_a_line_leaves_out_templates_whose_fields_are_missing():
    templates = ("loss {loss:.1f}", "of {count} ({share:.0%})", "{none}", "end")
    assert line({"loss": 2, "count": 3, "none": None}, *templates) == "loss 2.0  end"


def test_a_run_that_goes_on_appends_to_its_table(tmp_path):
    path = tmp_path / "m.csv"
    for append, step in ((False, 1), (True, 2), (True, 3)):
        with exports.table(path, append) as writer:
            writer.row({"step": step, "loss": 1.0 / step, f"new{step}": 0})
    with exports.table(path, append=True):  # killed before its rank_0_writer row
        pass
    assert [row["step"] for row in exports.read(path)[1]] == ["1", "2", "3"]
    with exports.table(path) as writer:  # another begins anew
        writer.row({"step": 9})
    assert exports.read(path) == (["step"], [{"step": "9"}])


def test_tensorboard_gets_an_event_a_row_with_its_numbers(tmp_path):
    from tensorboardX.proto.event_pb2 import Event

    with exports.tensorboard(tmp_path) as writer:
        writer.row({"step": 10, "loss": 0.5, "name": "text", "none": None})
        writer.row({"loss": 0.25})  # no step: the next
        writer.summary({"loss": 0.25, "accuracy": 1})
    (file,) = tmp_path.iterdir()
    data, found = file.read_bytes(), []
    while data:
        (length,) = struct.unpack("<Q", data[:8])  # then checksums, of 4 bytes each
        event = Event.FromString(data[12 : 12 + length])
        values = {one.tag: one.simple_value for one in event.summary.value}
        found.append((event.step, values))
        data = data[16 + length :]
    assert found[-3:] == [
        (10, {"loss": 0.5}),
        (11, {"loss": 0.25}),
        (11, {"summary/loss": 0.25, "summary/accuracy": 1.0}),
    ]
