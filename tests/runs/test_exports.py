import struct

from dml.runs import exports


def test_a_table_has_a_line_a_row_at_once_and_a_new_column_widens_all(tmp_path):
    path = tmp_path / "m.csv"
    with exports.table(path) as writer:
        writer.row({"step": 1, "loss": 0.5})
        assert path.read_text() == "step,loss\n1,0.5\n"
        writer.row({"loss": 0.25, "step": 2})
        assert path.read_text() == "step,loss\n1,0.5\n2,0.25\n"
        writer.row({"step": 3, "accuracy": 0.5, 'a "name", quoted': "x\ny"})
        writer.row({"step": 4})
    columns, rows = exports.read(path)
    assert columns == ["step", "loss", "accuracy", 'a "name", quoted']
    assert [list(row.values()) for row in rows[1:]] == [
        ["2", "0.25", "", ""],
        ["3", "", "0.5", "x\ny"],
        ["4", "", "", ""],
    ]


def test_a_run_that_goes_on_appends_to_its_table(tmp_path):
    path = tmp_path / "m.csv"
    for append, step in ((False, 1), (True, 2), (True, 3)):
        with exports.table(path, append) as writer:
            writer.row({"step": step, "loss": 1.0 / step, f"new{step}": 0})
    with exports.table(path, append=True):  # killed before its first row
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
