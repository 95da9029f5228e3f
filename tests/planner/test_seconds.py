"""Seconds of a step: parts add up, and follow from closed forms and virtual ranks."""

import numpy as np
import pytest

from dml.planner import collectives, execution, runs, search, seconds
from dml.planner.calibration import load
from dml.planner.devices import DEVICES, published_device
from dml.planner.physics import Constants, Physics
from dml.planner.runs import Mesh
from dml.planner.shapes import MODELS, Shape
from dml.sim.networks.uniform import Uniform
from dml.sim.phantom import Phantom
from dml.sim.run import run
from dml.types import BadInput
from dml.wire.collectives.ring import ring_allreduce

TINY = Shape(8, 1024, 8, 4096, 1024, 512)
BARE = Physics(
    traffic=0.0,
    softmax=0.0,
    kernel=0.0,
    latency=0.0,
    imbalance=1.0,
    boundary=1.0,
    optimizer=0.0,
    waiting=0.0,
    reduce=1.0,
    reduce_sharded=1.0,
)


def one(mesh: Mesh, batch: float = 64, name: str = "a100", shape: Shape = TINY):
    return runs.make(shape, mesh, DEVICES[name], batch)


def test_flops_of_gpt3_are_those_of_the_papers():
    """6 flops per parameter and token; 314e21 for 300 billion tokens (Brown 2020)."""
    shape = MODELS["gpt3_175b"]
    assert shape.parameters == pytest.approx(174.6e9, rel=2e-3)
    assert 6 * shape.parameters * 300e9 == pytest.approx(3.14e23, rel=2e-3)
    expected = 6 * shape.parameters + 6 * 96 * 2048 * 12288
    assert shape.flops(1) == expected
    assert MODELS["mixtral_8x7b"].parameters == pytest.approx(46.6e9, rel=0.01)
    assert MODELS["mixtral_8x7b"].active == pytest.approx(12.8e9, rel=0.02)
    assert MODELS["llama3_405b"].parameters == pytest.approx(403.7e9, rel=2e-3)


def test_products_of_one_device_by_hand():
    """6 flops for each weight and token over the peak, if all tiles are full."""
    device = DEVICES["tpu_v4"]  # a systolic array: sizes are multiples of 128
    run = runs.make(TINY, Mesh(), device, 1)
    weights = 8 * 12 * 1024**2 + 1024**2  # blocks, and the head
    pieces = seconds.parts(run, Physics())
    assert pieces["products"] == pytest.approx(6 * 512 * weights / 275e12)
    assert pieces["tensor"] == pieces["bubble"] == pieces["data"] == 0


@pytest.mark.parametrize("rows, columns, share", [
    (256 * 108, 128, 1.0),  # one full wave
    (256 * 109, 128, 109 / 216),  # one tile in the second wave
    (128, 128, 0.5 / 108),  # half a tile on one of 108 processors
])  # fmt: skip
def test_waves_of_tiles(rows, columns, share):
    assert seconds.filled(rows, columns, 108) == pytest.approx(share)


def test_a_systolic_array_is_padded_and_a_core_is_not():
    assert seconds.filled(129, 128, 0) == pytest.approx(129 / 256)
    assert seconds.filled(129, 128, -1) == 1.0


def test_parts_are_linear_in_the_constants():
    run = one(Mesh(data=4, tensor=2, stage=2, micro_batch=4, zero=1))
    physics = Physics()
    whole = seconds.total(seconds.parts(run, physics, Constants(1.3, 1.7)))
    first = seconds.total(seconds.parts(run, physics, Constants(1.0, 0.0)))
    second = seconds.total(seconds.parts(run, physics, Constants(0.0, 1.0)))
    assert whole == pytest.approx(1.3 * first + 1.7 * second, rel=1e-12)


def test_bubble_is_k_minus_one_over_m():
    run = one(Mesh(stage=4, micro_batch=4))
    pieces = seconds.parts(run, BARE)
    steady = sum(
        pieces[name]
        for name in ("products", "attention", "traffic", "kernels", "tensor")
    )
    assert pieces["bubble"] == pytest.approx(steady * 3 / 16)
    halved = seconds.parts(one(Mesh(stage=4, micro_batch=4, rounds=2)), BARE)
    assert halved["bubble"] == pytest.approx(pieces["bubble"] / 2)


@pytest.mark.parametrize("data, stages, cores", [
    (1, 4, 4), (1, 4, 3), (1, 4, 2), (1, 4, 1), (1, 8, 3), (2, 2, 2),
])  # fmt: skip
def test_stages_that_share_cores_are_idle_for_less_time(data, stages, cores):
    """In a tick of GPipe the active stages of all replicas share the cores."""
    micro_batches, ranks = 8, data * stages
    active = [
        min(tick + 1, stages, micro_batches + stages - 1 - tick)
        for tick in range(micro_batches + stages - 1)
    ]
    exact = sum(max(1.0, data * count / cores) for count in active)
    run = one(Mesh(data=data, stage=stages))._replace(sharing=max(1.0, ranks / cores))
    found = (micro_batches + seconds.idle(run)) * run.sharing
    assert found == pytest.approx(exact)
    assert seconds.idle(run._replace(sharing=1.0)) == stages - 1


def test_columns_are_equal_to_single_runs():
    meshes = [
        Mesh(data=64),
        Mesh(data=8, tensor=8, micro_batch=2, zero=3),
        Mesh(data=4, tensor=4, stage=4, micro_batch=4, zero=1, remat=1.0),
        Mesh(data=16, stage=2, context=2, rounds=2, micro_batch=1, selective=1.0),
    ]
    table = [one(mesh) for mesh in meshes]
    columns = seconds.parts(runs.stack(table), Physics())
    for index, single in enumerate(table):
        for name, value in seconds.parts(single, Physics()).items():
            assert np.broadcast_to(columns[name], 4)[index] == pytest.approx(
                float(value), rel=1e-12
            )


def test_remat_adds_a_third_of_the_products():
    plain = seconds.parts(one(Mesh()), BARE)
    again = seconds.parts(one(Mesh(remat=1.0)), BARE)
    head = seconds.head_pass(one(Mesh()), BARE).products * 64
    blocks = plain["products"] - head
    assert again["products"] == pytest.approx(head + blocks * 4 / 3, rel=0.05)


def test_experts_use_the_flops_of_the_active_ones():
    dense = seconds.parts(one(Mesh(), name="tpu_v4"), BARE)
    routed = TINY._replace(experts=8, top_k=2, feed_forward=2048)
    sparse = seconds.parts(one(Mesh(), name="tpu_v4", shape=routed), BARE)
    assert sparse["products"] == pytest.approx(dense["products"])
    alone = seconds.parts(one(Mesh(data=8), shape=routed), Physics())
    spread = seconds.parts(one(Mesh(data=8, expert=8), shape=routed), Physics())
    assert alone["experts"] == 0 < spread["experts"]
    assert spread["data"] < alone["data"]


@pytest.mark.parametrize("size", [2, 3, 8])
def test_collectives_are_those_of_virtual_ranks(size):
    nbytes, bandwidth, alpha = 840 * 1024, 25e9, 3e-6
    network = Uniform(alpha=alpha, beta=1 / bandwidth, gamma=0.0)

    def program(comm):
        ring_allreduce(comm, Phantom(nbytes), segment=nbytes)
        return comm.Wtime()

    expected = collectives.all_reduce_seconds(size, nbytes, bandwidth, alpha)
    clocks = run(program, size, network)
    assert clocks == pytest.approx([expected] * size, rel=1e-9)


@pytest.mark.parametrize("mesh", [
    Mesh(data=4, stage=4, micro_batch=2, zero=1),
    Mesh(data=2, stage=2, tensor=2, micro_batch=2, rounds=2),
    Mesh(data=8, micro_batch=2, zero=3),
    Mesh(data=2, stage=4, micro_batch=4, remat=1.0),
])  # fmt: skip
def test_executed_seconds_are_those_of_the_plan(mesh):
    """Equal stages, and messages of no length: the schedule gives the planned bubble.

    The head, a column wide, takes 0.4 % of a stage, which the plan spreads over all.
    """
    shape = TINY._replace(vocabulary=1)
    run_ = one(mesh, shape=shape)
    fast = run_._replace(network=1e30, link=run_.link)
    physics = BARE._replace(boundary=0.0)
    if mesh.stage > 1:
        fast = fast._replace(link=1e30)
    constants = Constants(1.3, 1.2)
    planned = seconds.total(seconds.parts(fast, physics, constants))
    done = execution.execute(fast, physics, constants)
    assert done.seconds == pytest.approx(float(planned), rel=5e-3)


@pytest.mark.parametrize("together", [False, True])
def test_tensor_ranks_send_parts_of_the_activations(together):
    """Each way a quarter crosses the network, and a ring gathers it in the domain.

    With sequence parallelism the next stage needs no more than the quarter.
    """
    mesh = Mesh(stage=4, tensor=4, sequence_parallel=together)
    run_ = one(mesh)._replace(link=1e10, network=1e9)
    nbytes, ways = 2.0 * TINY.sequence * TINY.width, 2 * (64 + 2 * 3)
    part = nbytes / 4 / (1e9 / run_.node) + (0 if together else 3 * nbytes / 4 / 1e10)
    found = seconds.parts(run_, BARE)["boundary"]
    assert found == pytest.approx(ways * part)
    sent, *_ = execution.exchanges(run_, BARE, Constants(1.0, 2.0))
    assert sent.nbytes == nbytes / 4
    assert sent.timed == execution.timed(2 * part)


@pytest.mark.parametrize("layers, stages", [
    (8, 4), (126, 32), (100, 16), (7, 7), (5, 4), (9, 2), (3, 1),
])  # fmt: skip
def test_blocks_of_stages(layers, stages):
    blocks = execution.stage_blocks(layers, stages)
    assert blocks.sum() == layers and (blocks >= 0).all() and len(blocks) == stages
    shape = TINY._replace(layers=layers)
    assert blocks.max() <= one(Mesh(stage=stages), shape=shape).largest_stage


def test_executed_messages_are_counted():
    mesh = Mesh(data=2, stage=4, micro_batch=4)
    done = execution.execute(one(mesh), Physics(), Constants())
    count = 64 / (2 * 4)  # micro batches
    # per replica: forwards and backwards over 3 boundaries; a ring of 2 for each stage
    assert done.messages == 2 * (2 * count * 3) + 4 * 2 * 2
    stream = 2 * 4 * 512 * 1024
    vector = sum(seconds.device_parameters(one(mesh))) * 2
    expected = 2 * 2 * count * 3 * stream + 8 * vector
    assert done.nbytes == pytest.approx(float(expected))


def test_a_straggler_and_a_second_job_delay_the_step():
    run_ = one(Mesh(data=4, stage=2, micro_batch=4, tensor=8), name="h100")
    physics, constants = load().physics, Constants()
    plain = execution.execute(run_, physics, constants).seconds
    slow = execution.Conditions(straggler=2.0)
    assert execution.execute(run_, physics, constants, slow).seconds > 1.3 * plain
    shared = execution.Conditions(jobs=3)
    assert execution.execute(run_, physics, constants, shared).seconds > plain


def test_too_many_virtual_ranks_are_refused():
    with pytest.raises(BadInput, match="at most 4096 virtual ranks"):
        execution.execute(one(Mesh(data=5000), 5000), Physics(), Constants())


def test_all_meshes_of_4096_devices():
    cluster = search.Cluster(DEVICES["h100"], "H100-80GB SXM", 4096)
    plans = search.plan(MODELS["llama3_70b"], cluster, 2048, load())
    assert (plans.table.devices == 4096).all()
    order = plans.ranked()
    assert len(order) > 100 and plans.fits[order].all()
    assert (np.diff(plans.seconds[order]) >= 0).all()
    mesh = plans.mesh(int(order[0]))
    alone = runs.make(MODELS["llama3_70b"], mesh, DEVICES["h100"], 2048)
    again = seconds.total(seconds.parts(alone, load().physics, plans.constants))
    assert again == pytest.approx(plans.seconds[order[0]])


def test_texts_of_published_devices():
    name, device = published_device("A100-80GB SXM (4 x 100 Gb/s RoCE)")
    assert name == "a100" and device.network == 400
    name, device = published_device("H100-80GB SXM (800 Gb/s)")
    assert name == "h100" and device.network == 800
    assert published_device("abacus") is None
