"""Which strategies for GloVe agree, to the last bit or how closely."""

from functools import partial

import numpy as np
import pytest

from dml import sim
from dml.metrics.timer import Timer
from dml.models.networks.glove import glove
from dml.strategies.glove import descend
from dml.strategies.glove.problem import Gradient, problem
from dml.strategies.glove.problem import order as order_of
from dml.strategies.glove.tiling import tiled
from dml.strategies.serial import serial
from dml.strategies.shared.hogwild import worker_blocks
from dml.types import BadInput
from dml.update import rows
from dml.update.rows import padded_length
from dml.wire.collectives import ALLREDUCE
from dml.wire.comm import Metered
from dml.wire.memory.state import Worker
from tests.strategies.glove.lattice import (
    DIM,
    HOSTS,
    WAYS,
    WORDS,
    begun,
    corpus,
    digest,
    on_ranks,
    order,
    steps,
)

both = pytest.mark.parametrize("tables", (1, 2))


def bits(size, how, network=None, seed=0, **k):
    """Name the losses and the state with which rank 0 ends."""
    first, *others = on_ranks(size, how, network, seed, **k)
    assert all(one.state is None for one in others)
    return digest(first)


UNBUFFERED = sim.Uniform(eager=0)


@both
@pytest.mark.parametrize(
    "how, sizes, network",
    [
        ("hogwild", (1,), None),
        *((how, (1, 2, 3, 4, 8), None) for how in ("travel", "stay")),
        *((how, (3,), UNBUFFERED) for how in ("travel", "stay")),
        ("travel", (3, 4, 7), HOSTS),
    ],
)
def test_rotation_has_the_bits_of_serial_on_any_ranks(how, sizes, network, tables):
    (serial,) = on_ranks(1, "serial", tables=tables)
    for size in sizes:
        assert bits(size, how, network, seed=size, tables=tables) == digest(serial)
    assert list(serial.losses) == sorted(serial.losses, reverse=True)
    assert serial.losses[-1] < 0.9 * serial.losses[0]


@pytest.mark.parametrize("size", (1, 2, 3, 8))
@pytest.mark.parametrize("rows", (4, 1 << 16))
def test_ranks_of_hogwild_have_equal_records_however_few_tiles_a_cell_has(size, rows):
    one = order(2, rows=rows)
    found, blocks = sim.run(lambda comm: tiled(comm, corpus(), WORDS, one), 1)[0]
    kernel = problem(glove(WORDS, DIM).init(1), found, blocks).kernel
    shares = [
        worker_blocks(kernel, order_of(found), Worker(me, size)) for me in range(size)
    ]
    for cell, *parts in zip(found.grid.cells.values(), *shares, strict=True):
        every = sorted(tile for part in parts for tile in part)
        assert every == list(range(cell.start, cell.stop))
        assert all(list(part) == sorted(part) for part in parts)
    records = np.diff(found.starts)
    each = [records[np.concatenate(share)] for share in shares]
    loads = [some.sum() for some in each]
    last = min(n for n in each[np.argmax(loads)] if n)
    assert max(loads) - last <= min(loads)  # it was the least when its last one came


@both
@pytest.mark.parametrize("how", ("operation", "sparse", "dense"))
def test_synchronous_ways_are_minibatch_up_to_the_order_of_sums(how, tables):
    (want,) = on_ranks(1, "minibatch", tables=tables)
    assert bits(1, how, tables=tables) == digest(want)
    for size in (2, 3, 8):
        many = on_ranks(size, how, tables=tables)[0]
        # Sums of the same float32 in another order are off by some 2^-24 = 6e-8 in each
        # of 24 steps, and each step carries them on. Measured: 2.4e-6 at most.
        assert many.losses == pytest.approx(want.losses, rel=1e-6)
        for found, wanted in zip(many.state, want.state, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@both
def test_sparse_and_dense_have_the_same_bits_on_two_ranks(tables):
    """A sum of two does not depend on its order."""
    want = bits(2, "sparse", tables=tables)
    for allreduce in sorted(ALLREDUCE):
        assert bits(2, "dense", tables=tables, allreduce=allreduce) == want


@pytest.mark.parametrize("how", ("sparse", "dense"))
@pytest.mark.parametrize("name", sorted(ALLREDUCE))
def test_replicas_are_byte_equal_by_any_allreduce(name, how):
    def program(comm):
        going = steps(Metered(comm), how, *begun(comm), allreduce=name)
        return next(going).loss, next(going).params().tobytes()

    assert len(set(sim.run(program, 3))) == 1


@both
@pytest.mark.parametrize("batch", (1, 1499, 10_000))
def test_any_minibatch_will_do(batch, tables):
    """One record, ragged ones, fewer than ranks in the last, and more than all."""
    records = corpus(70 if batch < 10 else 1500)
    k = {"tables": tables, "batch": batch, "records": records, "epochs": 2}
    (want,) = on_ranks(1, "minibatch", **k)
    for how in ("operation", "sparse", "dense"):
        assert on_ranks(1, how, **k)[0].losses == want.losses
        for size in (3, 8):
            found = on_ranks(size, how, **k)[0]
            assert found.losses == pytest.approx(want.losses, rel=1e-5)


@pytest.mark.parametrize("how", WAYS)
def test_resumed_is_uninterrupted_bit_for_bit(how):
    size = 1 if how in ("serial", "hogwild", "minibatch") else 3
    for tables in (1, 2):
        whole = on_ranks(size, how, tables=tables, epochs=4)[0]
        half = on_ranks(size, how, tables=tables, epochs=2)[0]
        rest = on_ranks(size, how, tables=tables, epochs=2, start=half.state)[0]
        assert half.losses + rest.losses == whole.losses
        assert digest(rest._replace(losses=whole.losses)) == digest(whole)


@pytest.mark.parametrize("how", WAYS)
def test_collecting_after_each_epoch_changes_nothing(how):
    """Blocks go on from where they were."""
    size = 1 if how in ("serial", "hogwild", "minibatch") else 3

    def program(comm, look):
        seen = []
        for step in steps(Metered(comm), how, *begun(comm)):
            if look:
                table = step.params()
                assert (table is None) == (comm.rank > 0 and not step.replicas)
            seen.append((step.loss, step.words_sent))
        return seen

    looking = sim.run(lambda comm: program(comm, True), size)
    assert looking == sim.run(lambda comm: program(comm, False), size)


@pytest.mark.parametrize(
    "how, size, network, message",
    [
        ("operation", 5, None, f"5 ranks .* got {DIM}; pass --dim=<a multiple of 5>"),
        ("travel", 9, None, "at most 8 ranks for 8 blocks, got 9; pass --blocks=<at"),
        ("stay", 9, None, "at most 8 ranks for 8 blocks, got 9; pass --blocks=<at"),
        ("hogwild", 4, HOSTS, "on one host, .* got ranks on 2; .*--strategy=rota"),
    ],
)
def test_ranks_that_do_not_fit_are_refused(how, size, network, message):
    with pytest.raises(BadInput, match=message):
        on_ranks(size, how, network)


@pytest.mark.parametrize("module", (descend, rows))
def test_a_kernel_is_compiled_once_for_all_ways_and_ranks(module):
    """So that compile_ahead on one rank compiles what all ranks need."""
    module.kernel.cache_clear()
    for how in WAYS:
        on_ranks(1 if how in ("serial", "minibatch") else 2, how, epochs=1)
    assert len(module.kernel(padded_length(DIM)).signatures) == 1


@both
def test_parts_of_a_minibatch_are_added_without_weights(tables):
    """GloVe's gradients are sums: parts that are accumulated are those of ranks."""

    def program(comm, accumulate):
        task = problem(*begun(comm, tables))
        batch = np.arange(task.examples)
        task = task._replace(gradient=Gradient(len(task.params), DIM, task.examples))
        update = partial(rows.AdaGrad, rate=0.05)
        options = {"comm": comm, "timer": Timer(), "accumulate": accumulate}
        (step,) = serial(task, [batch], update, **options)
        return step.loss, step.params()

    whole, parts = (sim.run(lambda comm, n=n: program(comm, n), 1)[0] for n in (1, 4))
    assert parts[0] == pytest.approx(whole[0], rel=1e-6)
    np.testing.assert_allclose(parts[1], whole[1], rtol=1e-5, atol=1e-5)
