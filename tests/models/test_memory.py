import itertools

import jax
import pytest

from dml.models import memory
from dml.models.memory import FLOAT32, MIXED, device_bytes, fullest_device
from dml.models.networks.transformer import SIZES, Shape, shapes
from dml.types import BadInput
from dml.wire.plans.mesh import MeshPlan

SMALL = Shape(vocabulary=50, length=16, layers=8, width=48, heads=8)


def total(plan, rule=MIXED):
    return fullest_device(SMALL, True, plan, rule).total


def plans():
    """Many plans of SMALL: meshes, microbatches, ways."""
    yield from (
        MeshPlan(
            *axes, microbatch=2, microbatches=m, remat=remat, sequence=cut, zero=zero
        )
        for *axes, m, remat, cut, zero in itertools.product(
            (1, 3), (1, 2, 8), (1, 4), (1, 5), (False, True), (False, True), range(4)
        )
    )


@pytest.mark.parametrize("causal", (True, False))
@pytest.mark.parametrize("shape", (SMALL, Shape(30, 9, *SIZES["gpt"]["mini"])))
def test_parameters_are_as_many_as_the_network_has(shape, causal):
    leaves = jax.tree.leaves(shapes(shape, causal))
    assert memory.parameters(shape, causal) == sum(leaf.size for leaf in leaves)


@pytest.mark.parametrize("causal", (True, False))
@pytest.mark.parametrize("stages", (1, 2, 3, 8))
def test_stages_together_hold_all_parameters_and_one_more_table(stages, causal):
    plan = MeshPlan(stage=stages)
    found = [
        memory.stage_parameters(SMALL, causal, plan, stage) for stage in range(stages)
    ]
    copy = memory.table_parameters(SMALL) * (stages > 1)
    assert sum(found) == memory.parameters(SMALL, causal) + copy


def test_each_level_of_zero_cuts_sixteen_bytes_a_parameter_over_data():
    assert MIXED.parameter + MIXED.gradient + MIXED.state == 16
    assert sum(FLOAT32[:3]) == 16
    one = device_bytes(SMALL, True, MeshPlan(), 0)
    assert sum(one[:3]) == 16 * memory.parameters(SMALL, True)
    plans = [MeshPlan(data=4, zero=level) for level in range(4)]
    whole, *cut = (device_bytes(SMALL, True, plan, 0)[:3] for plan in plans)
    share = [-(-one // 4) for one in whole]
    assert cut[0] == (whole[0], whole[1], share[2])
    assert cut[1] == (whole[0], share[1], share[2])
    # and the block that is used
    assert cut[2] == (share[0] + 2 * memory.block_parameters(SMALL), share[1], share[2])


@pytest.mark.parametrize("rule", (MIXED, FLOAT32))
def test_more_tensor_more_zero_and_sequence_never_hold_more(rule):
    for plan in plans():
        wider = plan._replace(tensor=2 * plan.tensor)
        assert total(wider, rule) <= total(plan, rule)
        assert total(plan._replace(sequence=True), rule) <= total(plan, rule)
        if plan.zero < 3:
            assert total(plan._replace(zero=plan.zero + 1), rule) <= total(plan, rule)


def test_the_fullest_device_is_on_the_first_or_the_last_stage():
    for plan, layers in itertools.product(plans(), (8, 11)):
        shape = SMALL._replace(layers=layers)
        stages = range(plan.stage)
        most = max(device_bytes(shape, True, plan, stage).total for stage in stages)
        assert fullest_device(shape, True, plan).total == most


def test_1f1b_holds_no_more_than_gpipe_and_as_much_where_microbatches_are_few():
    for stages, many in itertools.product((1, 2, 4, 8), (1, 2, 3, 4, 9)):
        plan = MeshPlan(stage=stages, microbatches=many)
        for stage in range(stages):
            pair = [
                memory.activations(SMALL, plan._replace(schedule=name), stage)
                for name in ("1f1b", "gpipe")
            ]
            assert pair[0] <= pair[1]
            assert (pair[0] == pair[1]) == (many <= stages - stage)


def test_a_blocks_activations_are_korthikantis():
    s, b, h, a, t = 16, 2, 48, 8, 4
    for sequence, bytes_ in (
        (False, s * b * h * (10 + 24 / t + 5 * a * s / (h * t))),
        (True, s * b * h / t * (34 + 5 * a * s / h)),
    ):
        plan = MeshPlan(stage=8, tensor=t, microbatch=b, sequence=sequence)
        assert memory.activations(SMALL, plan, 3) == bytes_  # one block, one alive
        more = plan._replace(microbatches=4)
        assert memory.activations(SMALL, more, 4) == 4 * bytes_  # 8 - 4 alive
    again = plan._replace(remat=True)
    assert memory.activations(SMALL, again, 3) == 2 * s * b * h / t + bytes_


@pytest.mark.parametrize(
    "plan, message",
    [
        (MeshPlan(tensor=3), "expected heads divisible by tensor=3, got 8"),
        (MeshPlan(stage=9), "got 8 blocks for 9 stages; pass at most stage:8"),
        (MeshPlan(microbatches=0), "expected sizes of at least 1"),
        (MeshPlan(schedule="2f"), "expected a schedule of gpipe, 1f1b"),
        (MeshPlan(zero=4), "zero of 0 to 3, got '1f1b' and 4"),
    ],
)
def test_bad_plans_are_named(plan, message):
    with pytest.raises(BadInput, match=message):
        device_bytes(SMALL, True, plan, 0)
