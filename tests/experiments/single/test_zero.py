"""The single file of ZeRO has bits and words of the mesh of devices at all levels."""

import jax
import numpy as np
import optax
import pytest

from experiments.single import zero
from tests.checks import said
from tests.experiments.single import mesh_main
from tests.experiments.single.proof import broken, ran

SHAPES, STEPS, EXAMPLES = [(5, 7), (7, 3)], 3, 8  # no number of ranks divides them


def trained(level, size, module=zero):
    """Return losses, params and stored words of each rank, and the bytes sent."""
    draws = np.random.default_rng(0)
    start = [0.5 * draws.standard_normal(a * b) for a, b in SHAPES]
    x = draws.standard_normal((STEPS, EXAMPLES, 5))
    y = draws.standard_normal((STEPS, EXAMPLES, 3))
    return ran(lambda comm: module.train(comm, level, SHAPES, start, x, y), size)


@pytest.mark.parametrize("size", (1, 2, 3, 4))
@pytest.mark.parametrize("level", (1, 2, 3))
def test_all_levels_have_equal_bits_on_all_ranks(level, size):
    params = [
        params.tobytes()
        for each in (0, level)
        for (_, params, _), _ in trained(each, size)
    ]
    assert len(set(params)) == 1


@pytest.mark.parametrize("size", (2, 4))
def test_only_the_order_of_sums_differs_from_one_rank(size):
    ((_, expected, _), _), *_ = trained(0, 1)
    ((_, params, _), _), *_ = trained(3, size)
    assert abs(params - expected).max() < 1e-13


def test_updates_are_those_of_optax():
    draws = np.random.default_rng(1)
    w, state, optimizer = draws.standard_normal(9), (0, 0, 0), optax.adam(0.01)
    with jax.enable_x64(True):
        other, other_state = w, optimizer.init(w)
        for grad in draws.standard_normal((5, 9)):
            w, state = zero.adam(w, grad, state)
            updates, other_state = optimizer.update(grad, other_state)
            other = other + updates
        assert abs(w - np.asarray(other)).max() < 1e-14


@pytest.mark.parametrize("level", range(4))
def test_a_rank_stores_its_slices_and_sends_the_words_of_its_level(level):
    size, total = 4, sum(a * b for a, b in SHAPES)
    results, nbytes = zip(*trained(level, size), strict=True)
    stored = np.sum([words for _, _, words in results], axis=0)
    kinds = np.array([1, 1, 2])  # params, gradients, two moments
    sliced = [level > least for least in (2, 1, 0)]
    assert stored.tolist() == (kinds * total * np.where(sliced, 1, size)).tolist()
    collectives = [2, 3, 2, 3][level] * STEPS + (level == 3)  # to collect the result
    assert sum(nbytes) == collectives * (size - 1) * total * 8


@pytest.mark.parametrize("check", mesh_main.named("zero"))
def test_a_step_has_the_bits_and_words_of_devices(check):
    text = said(mesh_main.__name__)
    assert f"{check}: ok\n" in text, text


@pytest.mark.parametrize("size", (1, 2, 3, 4))
def test_the_printed_words_are_the_counted_ones(size, capsys):
    counted = ran(zero.main, size)
    _, _, *rows, bits, rounding = capsys.readouterr().out.splitlines()
    words = 50 * sum(int(row.split()[1]) for row in rows)
    slices = [np.array_split(range(512), size)[1 % size] for _ in range(2)]
    collected = 1024 - sum(map(len, slices))  # once, at level 3
    assert counted[0][1] == 8 * (words + collected)
    assert bits == "equal bits at all levels: True"
    assert rounding.startswith("equal to one process except for rounding: True")


@pytest.mark.parametrize(
    "old, new",
    [
        ("(rank - i - 2) % size]", "(rank - i - 3) % size]"),
        ("slices[rank][:] = own", "slices[rank - 1][:] = own"),
        ("if level == 1 else grads[n]", "if level == 2 else grads[n]"),
        ("if level in (1, 2) else w\n", "if level == 2 else w\n"),
        ("/ comm.Get_size()  # of", "/ 1  # of"),
    ],
)
def test_a_broken_line_changes_the_params(old, new, tmp_path):
    mutant = broken(tmp_path, zero, (old, new))
    ((_, expected, _), _), *_ = trained(0, 1)
    try:
        ((_, params, _), _), *_ = trained(1, 3, mutant)
    except ValueError:  # slices of other lengths
        return
    assert abs(params - expected).max() > 1e-6
