"""Lower bounds of all-reduces: closed forms, and no schedule is faster."""

import pytest

from dml import sim
from dml.sim.networks.cuts import allreduce_bound
from dml.sim.networks.named import network
from dml.wire.collectives import COLLECTIVES

ALPHA, BETA = 1e-6, 1e-9


@pytest.mark.parametrize("size", (1, 2, 5, 64))
def test_ports_bound_a_uniform_network(size):
    latency, byte = allreduce_bound(sim.Uniform(ALPHA, BETA), size)
    assert latency == pytest.approx((size - 1).bit_length() * ALPHA)
    assert byte == pytest.approx(2 * (size - 1) / size * BETA)


def test_the_cards_of_hosts_bound_more_than_their_memory():
    """H cards carry 2(H - 1) buffers; memory has a tenth of the seconds a byte."""
    assert allreduce_bound(network("hosts:4x8", 32), 32).byte == pytest.approx(
        2 * 3 / 4 * BETA
    )


def test_a_network_with_slow_links_is_bound_by_them():
    """A ring of 8 ranks has 2 links into each half, which carry 2 buffers."""
    from dml.sim.networks.torus import Torus

    net = Torus((8,))
    slow = net._replace(rates=net.rates._replace(link=1e-8))
    assert allreduce_bound(slow, 8).byte == pytest.approx(
        max(2 * 1 / 4, 2 * 3 / 8, 2 * 7 / 16) * 1e-8
    )
    assert allreduce_bound(net, 8).byte == pytest.approx(2 * 7 / 8 * BETA)


@pytest.mark.parametrize("text", ("hosts:4x4", "torus:4x4", "fat_tree", "slim_fly:5"))
def test_no_schedule_is_faster_than_the_bound(text):
    net = network(text, 16)
    bound = allreduce_bound(net, 16)
    for name in ("ring", "swing", "halving_doubling", "multiplying", "double_tree"):
        for nbytes in (64, 1 << 16, 1 << 20):
            schedule = COLLECTIVES["allreduce"][name].schedule(16, nbytes // 4)
            took = sim.evaluate(schedule, net, 16).clocks.max()
            assert took > bound.seconds(nbytes) > 0
