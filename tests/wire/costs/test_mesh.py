"""What a step costs by formula: its parts, and what they are made of."""

import pytest

from dml.wire.costs.allreduce import Job, Rates
from dml.wire.costs.allreduce import seconds as ring_seconds
from dml.wire.costs.mesh import (
    Machine,
    Seconds,
    Work,
    all_reduce_seconds,
    seconds,
    stage_flops,
)
from dml.wire.plans.mesh import MeshPlan

WORK = Work(layers=8, width=64, length=32, vocabulary=100, block=12 * 64**2)
MACHINE = Machine(1e12, Rates(1e-6, 1e-9, 0.0), Rates(1e-5, 1e-8, 0.0), host=8)
PLAN = MeshPlan(2, 2, 2, microbatch=2, microbatches=8)


def test_an_all_reduce_costs_what_a_ring_does():
    for size in (1, 2, 4, 8):
        job = Job(size, 1 << 16, itemsize=2, segment=1 << 30)
        ring = ring_seconds("ring", job, MACHINE.inside)
        assert all_reduce_seconds(size, 1 << 17, MACHINE.inside) == pytest.approx(ring)


def test_one_device_only_computes_six_flops_a_parameter_and_attention():
    plan = MeshPlan(microbatches=4)
    found = seconds(WORK, plan, MACHINE)
    assert found == Seconds(found.compute, 0, 0, 0, 0)
    counted = 6 * (8 * WORK.block + 100 * 64) + 12 * 8 * 64 * 32
    assert found.total == pytest.approx(4 * 32 * counted / 1e12)


def test_remat_adds_a_third_but_of_the_head():
    head = 6 * 100 * 64 * 32
    once, twice = (
        stage_flops(WORK, MeshPlan(remat=remat)) - head for remat in (False, True)
    )
    assert twice == pytest.approx(4 / 3 * once)


def test_the_bubble_is_its_formulas_share():
    for stages, many in ((2, 1), (4, 8), (8, 3)):
        found = seconds(WORK, MeshPlan(stage=stages, microbatches=many), MACHINE)
        share = found.bubble / (found.total - found.data)
        assert share == pytest.approx((stages - 1) / (many + stages - 1))


def test_tensor_sends_four_all_reduces_a_block_and_two_more_with_remat():
    plan = MeshPlan(tensor=4, microbatch=2, microbatches=3)
    each = all_reduce_seconds(4, 2 * 32 * 64 * 2, MACHINE.inside)
    assert seconds(WORK, plan, MACHINE).tensor == pytest.approx(3 * 8 * 4 * each)
    again = plan._replace(remat=True)
    assert seconds(WORK, again, MACHINE).tensor == pytest.approx(3 * 8 * 6 * each)


def test_replicas_and_stages_that_span_hosts_send_over_the_network():
    """Replicas are near in hosts of 4 devices, stages only if all share a host."""
    near, middle, far = (
        seconds(WORK, PLAN, MACHINE._replace(host=host)) for host in (8, 4, 2)
    )
    assert far.data == pytest.approx(10 * middle.data)
    assert middle.stage == pytest.approx(10 * near.stage)


def test_zero_sends_more_the_more_it_cuts():
    found = [seconds(WORK, PLAN._replace(zero=k), MACHINE).data for k in range(4)]
    assert found == pytest.approx([found[0] * k / 2 for k in (2, 2, 9, 24)])
    alone = PLAN._replace(data=1, zero=3)
    assert seconds(WORK, alone, MACHINE).data == 0
