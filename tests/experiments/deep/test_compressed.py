"""compressed.py: rows, figures and bad input."""

import compressed
import pytest

from dml.types import BadInput
from dml.wire.reducers.codecs.signs import sign
from tests.experiments.run_folder import read_rows

SMALL = ["--steps=30", "--repeats=1", "--ranks=3", "--lr=0.05"]
PARAMETERS = 26_122


def run(tmp_path, *argv):
    summary = compressed.main(["compressed.py", f"--out={tmp_path}", *SMALL, *argv])
    return summary, {row["reducer"]: row for row in read_rows(tmp_path)}


def test_rows_have_bytes_losses_and_the_bandwidth_below_which_a_code_pays(tmp_path):
    summary, rows = run(tmp_path, "--reducers=sign@gather+feedback,order_free,natural")
    exact = rows["exact"]
    assert list(rows) == ["exact", "sign@gather+feedback", "order_free", "natural"]
    scalars = 4 * 30  # the loss of every update, by a ring of three ranks
    assert exact["bytes_sent"] == pytest.approx(
        30 * 4 * PARAMETERS * 4 / 3, abs=3 * scalars
    )
    codes = 30 * 2 * sign().nbytes(PARAMETERS)
    assert rows["sign@gather+feedback"]["bytes_sent"] == pytest.approx(
        codes, abs=3 * scalars
    )
    assert exact["loss"] == pytest.approx(rows["order_free"]["loss"], rel=1e-4)
    assert rows["sign@gather+feedback"]["ratio"] == pytest.approx(21.3, abs=0.3)
    assert rows["order_free"]["pays"] == "never"  # as many bytes, and exponents
    signs = rows["sign@gather+feedback"]
    if seconds := signs["codec_seconds"]:  # may be measured as 0
        saved = (exact["bytes_sent"] - signs["bytes_sent"]) / 30
        assert signs["break_even_gbps"] == pytest.approx(8e-9 * saved / seconds)
    assert summary["natural_ratio"] == rows["natural"]["ratio"]
    for name in ("updates", "bytes"):
        assert (tmp_path / f"{name}.svg").exists()


@pytest.mark.parametrize(
    "flag, message",
    [
        ("--reducers=top_k:7", r"expected a fraction in \(0, 1\]"),
        ("--reducers=qsgd:4+feedback", "expected a biased code with feedback"),
        ("--reducers=power_sgd:900", "expected a matrix of more than"),
        ("--problem=glove", "expected a problem with a pytree of parameters"),
    ],
)
def test_bad_input_is_refused_before_any_training(tmp_path, flag, message):
    with pytest.raises(BadInput, match=message):
        run(tmp_path / "out", flag)
    assert not (tmp_path / "out").exists()
