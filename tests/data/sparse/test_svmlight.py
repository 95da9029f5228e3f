import gzip

import numpy as np
import pytest

from dml.data.sparse.svmlight import (
    binary_labels,
    generate,
    renumber_by_frequency,
    shuffle,
    svmlight,
    write,
)
from dml.types import BadInput, Batch


def test_written_and_compressed_batches_are_read_and_broken_ones_refused(tmp_path):
    batch = generate(examples=30, features=50, nonzeros=4, seed=1)
    write(tmp_path / "data", batch)
    again = svmlight(tmp_path / "data", features=50)
    assert again.inputs.shape == (30, 50)
    # the file holds 16 digits, float32 has 8: nothing is lost
    assert (again.inputs != batch.inputs).nnz == 0
    assert np.array_equal(again.targets, batch.targets)
    assert again.inputs.dtype == again.targets.dtype == np.float32
    (tmp_path / "data.gz").write_bytes(
        gzip.compress(b"+1 2:0.5 4:2 # comment\n-1 3:1\n")
    )
    inputs, targets = svmlight(tmp_path / "data.gz")
    assert inputs.toarray().tolist() == [[0, 0.5, 0, 2], [0, 0, 1, 0]]
    assert targets.tolist() == [1, -1]
    (tmp_path / "empty").write_text("# nothing\n")
    (tmp_path / "broken.gz").write_bytes(b"1 1:3\n")
    (tmp_path / "short.gz").write_bytes(gzip.compress(b"1 1:3\n" * 99)[:-9])
    for name in ("missing", "empty", "broken.gz", "short.gz"):
        with pytest.raises(BadInput, match=f"{name}.* got .*; pass a "):
            svmlight(tmp_path / name)


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
    "line",
    ["1 0:3", "1 2:3 1:4", "x 1:2", "1 a:2", "1 3", "1 2:x", "1 9:1", "1 -3:2"]
    + ["1 2:1 2:1", "1 2:nan", "1 2:inf", "1 2:1e99", "1:2", "1 5000000000:1"],
)
def test_a_bad_line_is_named_with_what_stands_there(tmp_path, line):
    (tmp_path / "data").write_text(f"1 1:1\n{line}\n1 2:1\n")
    with pytest.raises(BadInput, match=f"data: line 2: expected .* got '{line}'"):
        svmlight(tmp_path / "data", features=5)


@pytest.mark.parametrize(
    "labels, want",
    [("+1 -1 -1", [1, -1, -1]), ("0 1 1", [-1, 1, 1]), ("1 1", [1, 1])]
    + [("0 0", [-1, -1]), ("-1 -1.0", [-1, -1])],
)
def test_labels_become_minus_and_plus_one(tmp_path, labels, want):
    (tmp_path / "data").write_text("".join(f"{y} 1:2\n" for y in labels.split()))
    batch = svmlight(tmp_path / "data")
    found = binary_labels(batch, tmp_path / "data")
    assert found.targets.tolist() == want and found.targets.dtype == np.float32
    assert found.inputs is batch.inputs


@pytest.mark.parametrize(
    "labels, line, got",
    [
        ("1 -1 2", 5, "2 .labels of the file: -1, 1, 2."),
        ("0 -1 0", 3, "0 .labels of the file: -1, "),
        ("1 1 nan", 5, "nan "),
        ("3 4 5 6 7 8", 3, "3 .labels of the file: 3, 4, 5, 6, 7, .."),
    ],
)
def test_a_label_of_neither_kind_is_named_with_its_line(tmp_path, labels, line, got):
    path = tmp_path / "data"
    text = "\n".join(f"{y} 1:2" for y in labels.split())
    path.write_text(f"# a comment\n\n{text}\n")
    want = f"data: line {line}: expected a label of -1 and 1, or of 0 and 1, got {got}"
    with pytest.raises(BadInput, match=want):
        binary_labels(svmlight(path), path)


def test_rows_are_shuffled_with_labels_and_features_numbered_by_frequency():
    batch = generate(examples=50, features=30, nonzeros=4, seed=2)
    mixed = batch.inputs.copy()
    for start in mixed.indptr[:-1]:  # as a parser might leave them: falling
        for part in mixed.indices, mixed.data:
            part[start : start + 4] = part[start : start + 4][::-1].copy()
    mixed.has_sorted_indices = False
    found, other = (shuffle(Batch(mixed, batch.targets), seed) for seed in (5, 6))
    order = np.random.default_rng(5).permutation(50)
    assert (found.inputs.toarray() == batch.inputs.toarray()[order]).all()
    assert (found.targets == batch.targets[order]).all()
    assert (found.inputs.toarray() != other.inputs.toarray()).any()
    for start in found.inputs.indptr[:-1]:
        assert (np.diff(found.inputs.indices[start : start + 4]) > 0).all()
    assert found.inputs.indptr.tolist() == list(range(0, 201, 4))
    one, other = generate(60, 15, 4, seed=1), generate(20, 15, 4, seed=2)
    order, hot = renumber_by_frequency(one, other)
    assert sorted(order) == list(range(15))
    for before, after in zip((one, other), hot, strict=True):
        assert np.array_equal(before.inputs.toarray()[:, order], after.inputs.toarray())
        assert after.inputs.has_canonical_format
    uses = (hot[0].inputs.toarray() != 0).sum(axis=0)
    assert list(uses) == sorted(uses, reverse=True)
