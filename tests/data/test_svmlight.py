import gzip

import numpy as np
import pytest

from dml.data.svmlight import generate, svmlight, write
from dml.types import BadInput


def test_a_written_batch_is_read_back(tmp_path):
    batch = generate(examples=30, features=50, nonzeros=4, seed=1)
    write(tmp_path / "data", batch)
    again = svmlight(tmp_path / "data", features=50)
    assert again.inputs.shape == (30, 50)
    # the file holds 16 digits, float32 has 8: nothing is lost
    assert (again.inputs != batch.inputs).nnz == 0
    assert np.array_equal(again.targets, batch.targets)
    assert again.inputs.dtype == again.targets.dtype == np.float32


def test_indices_count_from_one_even_where_one_is_unused(tmp_path):
    (tmp_path / "data").write_text("+1 2:0.5 4:2 # comment\n-1 3:1\n")
    inputs, targets = svmlight(tmp_path / "data")
    assert inputs.toarray().tolist() == [[0, 0.5, 0, 2], [0, 0, 1, 0]]
    assert targets.tolist() == [1, -1]


def test_compressed_files_are_opened(tmp_path):
    with gzip.open(tmp_path / "data.gz", "wt") as file:
        file.write("1 1:3\n")
    assert svmlight(tmp_path / "data.gz").inputs.toarray().tolist() == [[3]]


def test_generated_rows_repeat_by_seed_and_are_separable():
    one, same, other = (generate(200, 20, 3, seed) for seed in (0, 0, 1))
    assert (one.inputs != same.inputs).nnz == 0
    assert (one.inputs != other.inputs).nnz > 0
    assert np.diff(one.inputs.indptr).tolist() == [3] * 200
    normal = np.random.default_rng(0)  # a perceptron finds the hyperplane
    rows, weights = one.inputs.toarray(), normal.standard_normal(20)
    for _ in range(500):
        wrong = rows @ weights * one.targets <= 0
        weights += one.targets[wrong] @ rows[wrong]
    assert not wrong.any()


@pytest.mark.parametrize(
    "line", ["1 0:3", "1 2:3 1:4", "x 1:2", "1 a:2", "1 3", "1 2:x", "1 9:1"]
)
def test_a_bad_line_is_named_with_what_stands_there(tmp_path, line):
    (tmp_path / "data").write_text(f"1 1:1\n{line}\n1 2:1\n")
    with pytest.raises(BadInput, match=f"data: line 2: expected .* got '{line}'"):
        svmlight(tmp_path / "data", features=5)


def test_missing_empty_and_broken_files_are_bad_input(tmp_path):
    (tmp_path / "empty").write_text("# nothing\n")
    (tmp_path / "broken.gz").write_bytes(b"1 1:3\n")
    (tmp_path / "short.gz").write_bytes(gzip.compress(b"1 1:3\n" * 99)[:-9])
    for name in ("missing", "empty", "broken.gz", "short.gz"):
        with pytest.raises(BadInput, match=f"{name}.* got .*; pass a "):
            svmlight(tmp_path / name)
