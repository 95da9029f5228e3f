import pytest
import tensor
from studies.tensor import cases, report

from dml.models.networks.transformer import Shape
from dml.types import BadInput
from dml.wire.mesh.traffic import Collective
from tests.commands import COMPILED, PYTHON, output
from tests.experiments.run_folder import read_rows, read_summary

SMALL = ["--width=16", "--heads=2", "--vocabulary=12", "--length=8", "--batch=2"]


def run(out, *flags):
    """Run the command on small layers; return its output, summary and layers."""
    env = {"JAX_PLATFORMS": "cpu", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1", **COMPILED}
    argv = PYTHON, "experiments/tensor.py", *SMALL, *flags, f"--out={out}"
    text = output(*argv, **env)
    return text, read_summary(out), read_rows(out)


def test_two_devices_have_the_dense_numbers_and_send_the_words_of_the_formula(tmp_path):
    said, summary, rows = run(tmp_path, "--tensor=2", "--sequence", "--repeats=1")
    assert summary["equals_formula"]
    assert "compiled: equal to the formula" in said
    # 4 bytes x 2 examples x 8 places x 16, half of it by each of 4 + 4
    assert summary["block_bytes_2"] == 8 * 4 * 2 * 8 * 16 / 2
    assert summary["block_collectives_2"] == 8
    # float32: sums of tens of numbers
    assert 0 < summary["largest_gap_2"] < 1e-5
    assert {row["layer"] for row in rows} == {"embed", "block", "head"}
    for name in ("tensor.svg", "tensor.png", "config.json"):
        assert (tmp_path / name).stat().st_size > 0


def test_experts_and_ring_attention_send_the_words_of_their_formulas(tmp_path):
    flags = "--tensor=4", "--heads=4", "--experts=8", "--choices=2", "--ring"
    _, summary, rows = run(tmp_path, *flags, "--repeats=0")
    assert summary["equals_formula"] and summary["largest_gap_4"] < 1e-5
    sent = {(row["layer"], row["pass"]): row["bytes"] for row in rows}
    # 8 experts with room for 2 of 4 rows: ceil(1.25 * 2 * 4 / 8); 3 of 4 parts leave
    assert sent["experts", "forward"] == 2 * 8 * 2 * 16 * 4 * 3 / 4
    assert sent["experts", "backward"] == sent["experts", "forward"]
    # keys and values of 2 examples x 2 places x 16, round three devices
    assert sent["ring", "forward"] == 2 * 3 * 2 * 2 * 16 * 4
    assert sent["ring", "backward"] == (2 * 3 + 2 * 4) * 2 * 2 * 16 * 4


SHAPE = Shape(12, 8, 1, 16, 2)
STREAM = 4 * 2 * 8 * 16
BLOCK = cases.transformer_formula("block", SHAPE, 2, False)


@pytest.mark.parametrize(
    "forward, backward, right",
    [(2, 2, True), (1, 2, False), (2, 3, False)],
)
def test_a_collective_too_few_or_too_many_is_seen(forward, backward, right):
    of = ["jvp(Block)"] * forward + ["transpose(jvp(Block))"] * backward
    found = [Collective("all-reduce", STREAM, 4, 1, one) for one in of]
    rows = list(report.rows(found, "block", 4, BLOCK))
    assert all(map(report.equal, rows)) == right
    assert sum(row["bytes"] for row in rows) == (forward + backward) * 1.5 * STREAM


def test_bytes_without_a_formula_are_reported():
    found = [Collective("all-to-all", 64, 4, 1, "jvp(Embed)")]
    embed = cases.transformer_formula("embed", SHAPE, 2, False)
    rows = report.rows(found, "embed", 4, embed)
    assert [report.equal(row) for row in rows] == [False, False]


@pytest.mark.parametrize(
    "flags, message",
    [
        (["--tensor=1"], "2 devices or more, got --tensor=1"),
        (["--tensor=2,x"], "10.18 in --tensor, got 'x'"),
        (["--tensor=4"], "heads to be divisible by tensor=4, got 2"),
        (["--tensor=2", "--vocabulary=11"], "vocabulary to be divisible by tensor=2"),
        (["--tensor=2", "--sequence", "--length=7"], "length to be divisible by"),
        (["--tensor=2", "--ring", "--length=7"], "--length to be divisible by"),
        (["--tensor=2", "--experts=5"], "--experts to be divisible by --tensor=2"),
        (["--tensor=2", "--experts=4", "--choices=5"], "choices of 1 to 4 experts"),
    ],
)
def test_bad_input_is_refused_before_anything_is_compiled(flags, message, monkeypatch):
    monkeypatch.setattr(tensor.measurements, "devices", lambda count: None)
    with pytest.raises(BadInput, match=message):
        tensor.main(["tensor.py", *SMALL, *flags])
