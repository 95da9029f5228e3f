import collectives
import pytest
from studies.collectives import rows as collective_rows

from dml.types import BadInput
from dml.wire.collectives import COLLECTIVES
from tests.experiments.run_folder import check_folder, read_rows


def run(out, *argv):
    return collectives.main(["collectives.py", f"--out={out}", *argv])


@pytest.mark.parametrize("size", (1, 6))
def test_counted_messages_and_words_are_those_of_the_schedule(tmp_path, size):
    summary, *_ = run(tmp_path, f"--simulate={size}", "--sizes=4KB,256KB")
    found = read_rows(tmp_path)
    both = [
        own.schedule is None for table in COLLECTIVES.values() for own in table.values()
    ]
    assert len(found) == 2 * (len(both) + sum(both))
    assert {row["native_seconds"] for row in found} == {None}
    for row in found:
        if row["algorithm"] == "hierarchical":  # groups on one host share memory
            continue
        if row["schedule_words"] is not None:
            assert row["messages"] == row["schedule_messages"]
            assert row["words"] == row["schedule_words"]
        if row["predicted_seconds"] is not None:
            assert row["seconds"] <= row["predicted_seconds"] * (1 + 1e-9)
    check_folder(tmp_path, summary)


def test_a_wrong_result_ends_the_command(tmp_path, monkeypatch):
    wrong = COLLECTIVES["broadcast"]["chain"]._replace(function=lambda comm, buffer: 0)
    monkeypatch.setitem(collective_rows.COLLECTIVES["broadcast"], "chain", wrong)
    with pytest.raises(BadInput, match="expected the broadcast chain of 1023 elements"):
        run(tmp_path, "--simulate=3", "--sizes=4KB", "--collectives=broadcast")


def test_a_buffer_with_less_than_an_element_of_each_rank_is_refused(tmp_path):
    with pytest.raises(BadInput, match="for each of 4 ranks"):
        run(tmp_path, "--simulate=4", "--sizes=8B")
