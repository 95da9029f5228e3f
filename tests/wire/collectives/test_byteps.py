"""BytePS on virtual ranks: the star's bits, the paper's words, the formula's time."""

from functools import reduce

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dml import sim
from dml.types import BadInput
from dml.wire.collectives.byteps import byteps_allreduce
from dml.wire.comm import Metered
from dml.wire.comm.wrapper import Wrapper
from dml.wire.costs.allreduce import Job, Rates, byteps_seconds
from dml.wire.plans.byteps import byteps_pieces

WORLDS = [(n, k) for n in (1, 2, 3, 4, 6) for k in range(n + 1)]
BETA = 1e-3
SENDING = pytest.mark.parametrize("n, k", [(n, k) for n, k in WORLDS if n > 1])
few = settings(max_examples=60)


def reduced(n, k, length, segment=1 << 18, network=None, op=np.add, dtype="f4", **more):
    """Check all ranks' bits; return the slowest's seconds, and words by rank."""
    rng = np.random.default_rng([n + k, length])
    shape = n + k, length
    brought = rng.standard_normal(shape) * 10 ** rng.uniform(-2, 2, shape)
    brought = brought.astype(dtype)

    def program(comm):
        metered = Metered(comm)
        buffer = brought[comm.rank].copy()
        byteps_allreduce(metered, buffer, op, spare=k, segment=segment)
        return buffer.tobytes(), comm.Wtime(), metered.bytes_sent // 4

    found = sim.run(program, n + k, network, **more)
    buffers, seconds, words = zip(*found, strict=True)
    wanted = [reduce(op, brought[:n])] * n + list(brought[n:])
    assert list(buffers) == [row.tobytes() for row in wanted]
    return max(seconds), words


def even(n, k, repeats):
    """Return a length of pieces of three words, and the segment that cuts it so."""
    return 3 * repeats * byteps_pieces(n, k, 0, 1)[0], 12


@few
@given(data=st.data())
def test_workers_get_the_stars_bits_and_spare_hosts_keep_theirs(data):
    n = data.draw(st.integers(1, 9), "n")
    reduced(
        n=n,
        k=data.draw(st.integers(0, n), "k"),
        length=data.draw(st.integers(0, 300), "length"),
        segment=data.draw(st.integers(1, 400), "segment"),
        network=sim.Uniform(eager=data.draw(st.sampled_from((0, 65536)), "eager")),
        op=data.draw(st.sampled_from((np.add, np.maximum, np.minimum)), "op"),
        dtype=data.draw(st.sampled_from(("f2", "f4", "f8", "i4")), "dtype"),
        seed=data.draw(st.integers(0, 3), "seed"),
    )


@pytest.mark.parametrize("eager", (0, 1 << 30))
@SENDING
def test_words_are_the_papers_and_so_are_seconds_with_one_stage_to_drain(n, k, eager):
    """1 + 1/S with spare hosts, whose first sums come a stage late; else exactly 1."""
    for repeats in (1, 4):
        length, segment = even(n, k, repeats)
        took, words = reduced(n, k, length, segment, sim.Uniform(0, BETA, 0, eager))
        share = 2 * n * (n - 1) * length / (n * n + k * n - 2 * k)
        assert words == (pytest.approx(share, rel=1e-12),) * (n + k)  # on all ports
        paper = 4 * share * BETA
        stages = 2 * (n - 1) * repeats
        drained = 1 + 1 / stages if k else 1
        assert took == pytest.approx(paper * drained, rel=1e-9)
        formula = byteps_seconds(
            Job(n + k, length, segment=segment), Rates(0, BETA, 0), k
        )
        assert formula == pytest.approx(took, rel=1e-9)


@few
@given(data=st.data())
def test_uneven_pieces_latency_and_adding_cost_at_most_what_is_predicted(data):
    n = data.draw(st.integers(2, 7), "n")
    k = data.draw(st.integers(0, n), "k")
    length = data.draw(st.integers(0, 900), "length")
    segment = data.draw(st.integers(8, 500), "segment")
    eager = data.draw(st.sampled_from((0, 1 << 30)), "eager")
    gamma = data.draw(st.sampled_from((0.0, 3e-4, 3e-3)), "gamma")
    rates = Rates(2e-3, BETA, gamma)
    network = sim.Uniform(*rates[:3], eager)
    took, _ = reduced(n, k, length, segment, network)
    bound = byteps_seconds(Job(n + k, length, segment=segment), rates, k)
    if gamma and not eager:  # a send waits for a rank that adds up
        bound *= 1.1
    assert took <= bound * (1 + 1e-9)


class Logged(Wrapper):
    """Logs the starts of receives and sends of this rank."""

    log = ""

    def Irecv(self, *args):
        self.log += "r"
        return self.comm.Irecv(*args)

    def Send(self, *args):
        self.log += "s"
        self.comm.Send(*args)


def test_receives_of_a_stage_start_before_its_first_send():
    """Otherwise messages that share a port leave other ports idle."""

    def program(comm):
        logged = Logged(comm)
        byteps_allreduce(logged, np.ones(13, "f4"), spare=2)
        return logged.log

    calls = sim.run(program, 5)  # 3 workers; 4 stages, and one that only sends sums
    assert calls[:3] == ["rsss" + 3 * "rrrsss" + "rr"] * 3
    assert calls[3:] == ["rrr" + 3 * "rrrsss" + "sss"] * 2


@pytest.mark.parametrize("size, spare", [(4, 3), (3, 2), (2, -1), (1, 1)])
def test_more_spare_hosts_than_workers_are_refused(size, spare):
    def program(comm):
        with pytest.raises(BadInput, match=f"rank {comm.rank}: expected 0 to"):
            byteps_allreduce(comm, np.ones(3), spare=spare)

    sim.run(program, size)
