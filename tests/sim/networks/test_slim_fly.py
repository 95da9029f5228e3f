"""Finite fields and the graphs made of them."""

import numpy as np
import pytest

from dml.sim.networks.gf import field
from dml.sim.networks.slim_fly import ORDERS, SlimFly, mms
from dml.types import BadInput


@pytest.mark.parametrize("q", [2, 3, 4, 5, 7, 8, 9, 16, 25, 27, 32, 49, 64])
def test_a_field_keeps_the_laws(q):
    powers, plus, times = field(q)
    a, b, c = np.random.default_rng(q).integers(q, size=(3, 500))
    assert sorted(powers) == [*range(1, q)]
    for table, one in ((plus, 0), (times, 1)):
        assert (table[table[a, b], c] == table[a, table[b, c]]).all()
        assert (table == table.T).all()
        assert (table[one] == np.arange(q)).all()
        for row in table[1:]:
            assert len(set(row)) == q
    assert (times[a, plus[b, c]] == plus[times[a, b], times[a, c]]).all()
    assert (times[powers[:-1], powers[1] if q > 2 else 1] == powers[1:]).all()


def test_every_class_of_orders_is_offered():
    assert {5, 7, 11, 13, 17, 19, 23, 25, 27, 29, 4, 8, 9, 16} <= {*ORDERS}
    assert not {2, 6, 10, 12, 15, 18, 21, 45} & {*ORDERS}


@pytest.mark.parametrize("q", ORDERS)
def test_every_order_is_regular_and_of_diameter_two(q):
    graph = mms(q)
    d = {0: 0, 1: 1, 3: -1}[q % 4]
    degrees = np.bincount(graph.ends[:, 0], minlength=2 * q * q)
    assert len(degrees) == 2 * q * q and set(degrees) == {(3 * q - d) // 2}
    if q < 20:  # counted here, apart from the table's search
        near = np.eye(2 * q * q, dtype=np.float32)
        near[tuple(graph.ends.T)] = 1
        assert (near @ near > 0).all() and not (near > 0).all()
        assert (near == near.T).all()


def test_the_smallest_usual_one_is_the_graph_of_hoffman_and_singleton():
    near = np.zeros((50, 50), int)
    near[tuple(mms(5).ends.T)] = 1
    assert (near @ near + near == np.ones((50, 50)) + 6 * np.eye(50)).all()


def test_its_ranks_are_as_many_as_its_cables_can_feed():
    flies = SlimFly(5), SlimFly(19), SlimFly(5, concentration=2)
    assert [fly.capacity for fly in flies] == [2 * 25 * 4, 2 * 361 * 15, 100]


@pytest.mark.parametrize("q", [0, 1, 2, 6, 15, 18, 100, -5])
def test_an_order_without_a_graph_is_refused_with_near_ones(q):
    why = f"prime power .* got q={q}; the nearest"
    with pytest.raises(BadInput, match=why) as error:
        _ = SlimFly(q).capacity
    near = [int(word) for word in str(error.value).split("are ")[1].split(", ")]
    assert near == sorted(near) and {*near} <= {*ORDERS}
