"""quantization.py: rows within the bounds of the theorems, and bad input."""

import numpy as np
import pytest
import quantization
from studies.compression import theorem

from dml.types import BadInput
from dml.wire.reducers.names import TRANSPORTS
from tests.experiments.run_folder import read_rows


def test_rows_are_within_the_bounds_of_the_theorems(tmp_path):
    argv = ["--lengths=64,512", "--levels=1,8", "--trials=30", "--ranks=2,16"]
    summary = quantization.main(["quantization.py", f"--out={tmp_path}", *argv])
    both = read_rows(tmp_path)
    rows = [row for row in both if row["table"] == "theorem"]
    assert len(rows) == 2 * 2 * 2
    for row in rows:
        for name in ("bits", "error", "nonzero"):
            assert 0 < row[name] <= row[f"{name}_bound"]
    assert max(row["bits"] / row["bits_bound"] for row in rows) == summary["bits_share"]
    assert summary["bits_share"] > 0.5  # the bounds are not empty
    errors = {
        row["transport"]: row["errors"]
        for row in both
        if row["table"] == "transport" and row["code"] == "int8"
    }
    assert list(errors) == list(TRANSPORTS)
    assert errors["ring"][1] > 2 * errors["ring"][0]  # a rounding per hop
    assert errors["gather"][1] < errors["scatter"][1] < errors["ring"][1]


def test_zeros_and_single_elements_have_the_bits_of_the_norm_and_one_level():
    zeros = theorem.row("zeros", np.zeros(100, np.float32), 4, 2)
    assert (zeros["bits"], zeros["error"], zeros["nonzero"]) == (32, 0, 0)
    # gap 1, sign, level 4: 1 + 1 + 6 bits, and no error
    single = theorem.row("single", np.float32([-3]), 4, 2)
    assert (single["bits"], single["error"], single["nonzero"]) == (32 + 8, 0, 1)


@pytest.mark.parametrize(
    "flag, message",
    [
        ("--lengths=99999", "expected lengths up to 26122, .* got 99999"),
        ("--levels=2,128", "expected 1 to 127 levels of QSGD, got 128"),
        ("--levels=0", "--levels"),
    ],
)
def test_bad_input_is_refused_before_any_row(tmp_path, flag, message):
    with pytest.raises(BadInput, match=message):
        quantization.main(["quantization.py", f"--out={tmp_path / 'out'}", flag])
    assert not (tmp_path / "out").exists()
