"""A planned step executed on virtual ranks: its messages are sent and counted.

    stage 0   F F F F . . B B B B   all-reduce      one virtual rank for each pair of
    stage 1   . F F F F B B B B .   of gradients    replica and stage; its tensor group
              └──┘ activations                      computes as one device

The schedule is that of `plans.pipelines`. A rank computes a micro batch for the
predicted seconds of its stage, of which tensor and expert collectives are a part;
activations, their gradients and the gradients of replicas are messages. Receives are
posted early, as in the training loops, so messages overlap with computation where the
schedule allows it. Several jobs run on the same nodes and share their cards.
"""

import sys
from typing import Any, NamedTuple

import numpy as np

from dml.planner import seconds
from dml.planner.physics import Constants, Physics
from dml.planner.runs import Runs
from dml.sim.networks.fabric import Rates
from dml.sim.networks.hosts import Hosts
from dml.sim.networks.uniform import Uniform
from dml.sim.phantom import Phantom
from dml.sim.run import run
from dml.types import BadInput
from dml.wire.collectives.ring import ring_allreduce
from dml.wire.comm.metered import Metered
from dml.wire.plans.pipeline import schedules as pipelines
from dml.wire.plans.pipeline.stages import equal_parts
from dml.wire.plans.pipeline.times import input_of, output_of, stage_work

MOST = 4096  # virtual ranks
RATE = 1e12  # bytes per second of the virtual network


class VectorBytes(NamedTuple):
    """Bytes of a vector, and the bytes that take as long on the virtual network."""

    nbytes: float
    timed: int


class Step(NamedTuple):
    """The work of each virtual rank in a step."""

    schedule: pipelines.Schedule
    forward: np.ndarray  # seconds of a forward on each stage, for one part
    backward: np.ndarray
    boundary: VectorBytes  # activations between stages
    gradients: VectorBytes  # that replicas of a stage add; empty with zero = 3
    gathered: (
        VectorBytes  # per micro batch with zero = 3: two gathers, a reduce-scatter
    )
    hidden: float  # seconds of a micro batch that hide them
    update: float  # seconds


class Executed(NamedTuple):
    """Seconds and messages of an executed step."""

    seconds: float  # until the last rank of all jobs ends
    pipeline: float  # until its last micro batch ends
    messages: int  # of one job
    nbytes: float  # of one job


class Conditions(NamedTuple):
    """Stragglers and other jobs, which a plan does not contain."""

    straggler: float = 1.0  # factor of the computation of one rank
    jobs: int = 1  # equal jobs on the same nodes


PLAIN = Conditions()


def make_step(runs: Runs, physics: Physics, constants: Constants) -> Step:
    """Return the step of one run, given as numbers."""
    stages, rounds = int(runs.stage), int(runs.rounds)
    scale = np.array([constants.products] * 2 + [constants.other] * 4)
    block = np.array([float(v) for v in seconds.block_pass(runs, physics)]) @ scale
    head = np.array([float(v) for v in seconds.head_pass(runs, physics)]) @ scale
    blocks = stage_blocks(int(runs.layers), stages)
    work = blocks * block
    work[-1] += head
    # three products of a block, of which one forward; four with recomputation
    share = 1 / (3 + float(runs.remat))
    name = "interleaved" if rounds > 1 else "1f1b"
    count = int(runs.micro_batches)
    hidden = seconds.hidden_seconds(runs, physics, constants) / count
    return Step(
        pipelines.make(name, stages, count, rounds, 1),
        share * work / rounds,
        (1 - share) * work / rounds,
        *exchanges(runs, physics, constants),
        float(hidden) if runs.zero >= 3 else 0.0,
        constants.other * float(seconds.optimizer_seconds(runs, physics)),
    )


def stage_blocks(layers: int, stages: int) -> np.ndarray:
    """Return the blocks of each stage; uneven ones count embedding and head."""
    if layers % stages == 0:
        return np.full(stages, layers // stages)
    blocks = np.array([len(part) for part in equal_parts(layers + 2, stages)])
    blocks[[0, -1]] -= 1
    return blocks


def exchanges(
    runs: Runs, physics: Physics, constants: Constants
) -> tuple[VectorBytes, VectorBytes, VectorBytes]:
    """Return activations, gradients, and the vector that zero = 3 gathers.

    The virtual network has one rate, `RATE`; the timed bytes of a vector are its
    planned seconds at that rate.
    """
    nbytes, duration = seconds.boundary_message(runs, physics)
    boundary = VectorBytes(float(nbytes), timed(float(constants.other * duration)))
    replicas = runs.data * runs.context
    vector = sum(seconds.device_parameters(runs)) * runs.itemsize
    empty = VectorBytes(0.0, 0)
    if replicas == 1:
        return boundary, empty, empty
    pieces = seconds.parts(runs, physics, constants)
    hidden = seconds.hidden_seconds(runs, physics, constants)
    planned = float(pieces["data"] + (hidden if runs.zero >= 3 else 0.0))
    once = replicas / (replicas - 1)  # a ring sends (p - 1)/p of a vector
    if runs.zero >= 3:
        passes = 3 * float(runs.micro_batches)
        return boundary, empty, VectorBytes(vector, timed(planned * once / passes))
    return boundary, VectorBytes(vector, timed(planned * once / 2)), empty


def timed(duration: float) -> int:
    """Return the bytes that take a duration on the virtual network."""
    return round(float(duration) * RATE)


def execute(
    runs: Runs,
    physics: Physics,
    constants: Constants,
    conditions: Conditions = PLAIN,
) -> Executed:
    """Execute one step of a run on virtual ranks; see the module's docstring."""
    replicas = int(runs.data * runs.context)
    size = replicas * int(runs.stage)
    if size * conditions.jobs > MOST:
        raise BadInput(
            f"expected at most {MOST} virtual ranks, got {size} pairs of replica and "
            f"stage in {conditions.jobs} jobs; pass fewer devices or a larger tensor "
            "axis"
        )
    step = make_step(runs, physics, constants)
    jobs = conditions.jobs

    def program(world: Any) -> tuple[float, float, int, float]:
        comm = world.Split(world.rank % jobs, world.rank // jobs)
        return run_rank(comm, step, replicas, conditions)

    rates = Rates(alpha=0.0, beta=1 / RATE, gamma=0.0, link=1 / RATE, hop=0.0)
    network: Any = Uniform(alpha=0.0, beta=1 / RATE, gamma=0.0)
    if jobs > 1:
        network = Hosts(size, jobs, rates, (0.0, 1 / RATE))
    found = [r for r in run(program, size * jobs, network) if r is not None]
    first = found[::jobs]
    return Executed(
        max(end for end, _, _, _ in found),
        max(pipeline for _, pipeline, _, _ in found),
        sum(messages for _, _, messages, _ in first),
        sum(nbytes for _, _, _, nbytes in first),
    )


def run_rank(
    comm: Any, step: Step, replicas: int, conditions: Conditions
) -> tuple[float, float, int, float]:
    """Execute the step of one rank; return its end, and its messages and bytes."""
    stages = step.schedule.stages
    stage, replica = comm.rank % stages, comm.rank // stages
    pipe = Metered(comm.Split(replica, stage))
    group = Metered(comm.Split(stage, replica))
    slow = conditions.straggler if comm.rank == 0 else 1.0
    start = comm.Wtime()
    run_pipeline(pipe, group, step, slow)
    pipeline = comm.Wtime() - start
    if step.gradients.timed:
        ring_allreduce(group, Phantom(step.gradients.timed), segment=sys.maxsize)
    comm.platform.compute(slow * step.update)
    end = comm.Wtime() - start
    passes = 2 * step.gradients.nbytes
    passes += 3 * step.schedule.microbatches * step.gathered.nbytes
    nbytes = pipe.messages_sent * step.boundary.nbytes
    nbytes += passes * (replicas - 1) / replicas
    return end, pipeline, pipe.messages_sent + group.messages_sent, nbytes


def gather(group: Metered, nbytes: int) -> None:
    """Send what a ring gather sends, as one message to the right neighbour."""
    size, rank = group.size, group.rank
    part = nbytes * (size - 1) // size
    right, left = (rank + 1) % size, (rank - 1) % size
    group.Sendrecv(Phantom(part), right, 0, Phantom(part), left, 0)


def run_pipeline(pipe: Any, group: Any, step: Step, slow: float) -> None:
    """Execute the micro batches of a stage; with zero = 3 gather before each pass.

    Gathers follow the computation that hides them, less the hidden seconds.
    """
    schedule, stage = step.schedule, pipe.rank
    owner = schedule.stage_of
    durations = slow * np.array([step.forward[stage], step.backward[stage]])
    work = stage_work(schedule, stage)
    outgoing: list[Any] = []
    incoming: dict[tuple[int, int, int], Any] = {}
    for key in work:  # receives are matched by piece, so all may be posted at once
        needed = input_of(schedule, *key)
        if needed and owner[needed[2]] != stage:
            buffer = Phantom(step.boundary.timed)
            incoming[key] = pipe.Irecv(buffer, int(owner[needed[2]]), tag_of(key))
    for key in work:
        if key in incoming:
            incoming.pop(key).Wait()
        piece = key[0]
        hidden = slow * step.hidden * (1 / 3 if piece == 0 else 2 / 3)
        pipe.platform.compute(max(float(durations[piece]) - hidden, 0.0))
        for _ in range(1 + piece if step.gathered.timed else 0):
            gather(group, step.gathered.timed)
        following = output_of(schedule, *key)
        if following and owner[following[2]] != stage:
            dest = int(owner[following[2]])
            outgoing.append(
                pipe.Isend(Phantom(step.boundary.timed), dest, tag_of(following))
            )
    for request in outgoing:
        request.Wait()


def tag_of(key: tuple[int, int, int]) -> int:
    """Return the tag of the message that a piece receives."""
    piece, microbatch, part = key
    return (microbatch * 1024 + part) * 2 + piece
