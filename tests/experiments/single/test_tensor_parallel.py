"""The single file of tensor parallelism has bits and words of the mesh of devices."""

import numpy as np
import pytest

from experiments.single import tensor_parallel
from tests.checks import said
from tests.experiments.single import mesh_main
from tests.experiments.single.proof import broken, ran

BLOCKS, EXAMPLES, WIDTH, HIDDEN = 2, 5, 6, 7  # no number of ranks divides them
SHAPES = (WIDTH, WIDTH), (BLOCKS, WIDTH, HIDDEN), (BLOCKS, HIDDEN, WIDTH)


def problem():
    draws = np.random.default_rng(0)
    params = [0.3 * draws.standard_normal(shape) for shape in SHAPES]
    return params, *draws.standard_normal((2, EXAMPLES, WIDTH))


def gradients(size, module=tensor_parallel):
    """Return loss and gradients on every rank, and the bytes sent."""
    params, inputs, targets = problem()

    def program(comm):
        own = tensor_parallel.slices(params, comm.rank, size)
        return module.gradient(comm, own, inputs, targets)

    return ran(program, size)


def apart(found, expected):
    """Return the largest difference of the slices of gradients from one process."""
    return max(
        abs(grad - part).max()
        for rank, ((_, grads), _) in enumerate(found)
        for grad, part in zip(
            grads, tensor_parallel.slices(expected, rank, len(found)), strict=True
        )
    )


@pytest.mark.parametrize("size", (2, 3, 4, 7))
def test_only_the_order_of_sums_differs_from_one_rank(size):
    ((loss, expected), _), *_ = gradients(1)
    found = gradients(size)
    assert apart(found, expected) < 1e-12
    assert found[0][0][0] == pytest.approx(loss, rel=1e-13)


@pytest.mark.parametrize("size", (2, 3, 4))
def test_what_is_not_sliced_has_equal_bits_on_all_ranks(size):
    results = [result for result, _ in gradients(size)]
    assert len({(float(loss), grads[0].tobytes()) for loss, grads in results}) == 1


@pytest.mark.parametrize("check", mesh_main.named("tensor_parallel"))
def test_gradients_have_the_bits_and_words_of_devices(check):
    text = said(mesh_main.__name__)
    assert f"{check}: ok\n" in text, text


@pytest.mark.parametrize("size", (1, 2, 3, 4, 5))
def test_the_printed_words_are_the_counted_ones(size, capsys):
    counted = ran(tensor_parallel.main, size)
    text = capsys.readouterr().out
    words = int(text.split("words sent by rank 0 in a step: ")[1].split()[0])
    assert counted[0][1] == 6 * words * 8
    assert "equal to one process except for rounding: True" in text


@pytest.mark.parametrize(
    "old, new",
    [
        (
            "return x, lambda grad: all_reduce(comm, grad)",
            "return x, lambda grad: grad",
        ),
        (
            "return all_reduce(comm, y), lambda grad: grad",
            "return y, lambda grad: grad",
        ),
        (
            "all_reduce(comm, y), lambda grad: grad",
            "all_reduce(comm, y), lambda grad: all_reduce(comm, grad)",
        ),
        ("* (hidden > 0)", "* (hidden >= 0)"),
        ("return grad + grad_x,", "return grad_x,"),
    ],
)
def test_a_broken_line_changes_the_gradients(old, new, tmp_path):
    ((_, expected), _), *_ = gradients(1)
    mutant = broken(tmp_path, tensor_parallel, (old, new))
    assert apart(gradients(3, mutant), expected) > 1e-3


def test_too_many_ranks_are_refused():
    with pytest.raises(SystemExit, match="expected at most 48 ranks, got 49; start"):
        ran(tensor_parallel.main, 49)
