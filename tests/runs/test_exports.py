import csv
import struct

from dml.runs import exports


def read(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_a_table_has_a_line_a_row_at_once(tmp_path):
    with exports.table(tmp_path / "m.csv") as writer:
        writer.row({"step": 1, "loss": 0.5})
        assert read(tmp_path / "m.csv") == [{"step": "1", "loss": "0.5"}]
        writer.row({"loss": 0.25, "step": 2})
        assert (tmp_path / "m.csv").read_text() == "step,loss\n1,0.5\n2,0.25\n"


def test_a_new_column_widens_all_rows(tmp_path):
    with exports.table(tmp_path / "m.csv") as writer:
        writer.row({"step": 1})
        writer.row({"step": 2, "accuracy": 0.5, 'a "name", quoted': "x\ny"})
        writer.row({"step": 3})
    first, second, third = read(tmp_path / "m.csv")
    assert first == {"step": "1", "accuracy": "", 'a "name", quoted': ""}
    assert second == {"step": "2", "accuracy": "0.5", 'a "name", quoted': "x\ny"}
    assert third["step"] == "3"


def test_a_run_that_goes_on_appends_to_its_table(tmp_path):
    for append, step in ((False, 1), (True, 2), (True, 3)):
        with exports.table(tmp_path / "m.csv", append) as writer:
            writer.row({"step": step, "loss": 1.0 / step, f"new{step}": 0})
    assert [row["step"] for row in read(tmp_path / "m.csv")] == ["1", "2", "3"]
    with exports.table(tmp_path / "m.csv", append=True):  # killed before its first row
        pass
    assert [row["step"] for row in read(tmp_path / "m.csv")] == ["1", "2", "3"]
    with exports.table(tmp_path / "m.csv") as writer:  # another begins anew
        writer.row({"step": 9})
    assert read(tmp_path / "m.csv") == [{"step": "9"}]


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
