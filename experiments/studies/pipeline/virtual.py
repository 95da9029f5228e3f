"""Pipelines on the virtual cluster: time of a schedule by layers and network.

A rank is a stage. It executes its column of the schedule in order, each entry as soon
as its message has arrived; it does not wait for the tick of the entry. Receives are
posted in advance, so that messages are in transit while ranks compute.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from dml import sim
from dml.sim.networks.named import network
from dml.types import BadInput, Request
from dml.wire.plans.pipeline.schedules import Schedule, make
from dml.wire.plans.pipeline.stages import balanced_parts, equal_parts
from dml.wire.plans.pipeline.times import input_of, output_of, stage_work

FIRST_TAG = 16  # of activations and gradients; other messages have smaller tags
REPEATS = 20  # timings of a layer, of which the minimum is used
# Partitions of layers into `count` parts, by name.
CUTS = {
    "evenly": lambda seconds, count: equal_parts(len(seconds), count),
    "by seconds": balanced_parts,
}


class Layers(NamedTuple):
    """The layers of a pipeline, and the network of its stages.

    seconds: seconds of each layer for a microbatch, forward and backward together.
    nbytes: bytes of the activations of a layer for a microbatch.
    network: network as text, as in --network.
    """

    seconds: Sequence[float]
    nbytes: int
    network: str


def parse_seconds(text: str) -> list[float]:
    """Return the seconds of --layer_seconds; an empty list if the text is empty."""
    try:
        values = [float(number) for number in text.split(",")] if text else []
        if all(0 < value < math.inf for value in values):
            return values
    except ValueError:
        pass
    raise BadInput(
        f"expected seconds above 0 in --layer_seconds, separated by commas, got "
        f"{text!r}; pass for instance 0.001,0.004"
    )


def measured_seconds(sizes: Sequence[int], microbatch: int) -> list[float]:
    """Return the seconds of the layers of a GPT; one block is timed for all.

    sizes: the fields of transformer.Shape.
    microbatch: examples in a microbatch.
    """
    from lab import compiling
    import jax
    import jax.numpy as jnp

    from dml.models.layer_costs import seconds
    from dml.models.networks.transformer import Shape, shapes, transformer
    from dml.types import Batch

    shape = Shape(*sizes)
    one_block = shape._replace(layers=1)
    tokens_BxL = jax.ShapeDtypeStruct((microbatch, shape.length), jnp.int32)
    with compiling.explain_memory_errors(
        "a smaller --microbatch, --width or --vocabulary"
    ):
        compiling.enable_cache()
        layers = transformer(one_block, causal=True).layers
        batch = Batch(tokens_BxL, tokens_BxL)
        embed, block, head = seconds(layers, shapes(one_block, True), batch, REPEATS)
    return [embed, *[block] * shape.layers, head]


def speed_up(schedule: Schedule, layers: Layers, cut: str = "by seconds") -> float:
    """Return the time on one rank divided by the time on all stages."""
    serial = make("gpipe", 1, schedule.microbatches, pieces=schedule.pieces)
    cuts = CUTS[cut](layers.seconds, schedule.parts)
    stage_seconds = [sum(layers.seconds[part.start : part.stop]) for part in cuts]
    pipelined = completion_time(schedule, stage_seconds, layers)
    return (
        completion_time(serial, [sum(stage_seconds)], layers._replace(network="0,0,0"))
        / pipelined
    )


def completion_time(
    schedule: Schedule, seconds: Sequence[float], layers: Layers
) -> float:
    """Return the time at which the last rank ends; all pieces take equal time.

    schedule: the schedule.
    seconds: seconds of each part, forward and backward together.
    layers: activation size and network.
    """

    def program(comm: Any) -> float:
        durations = [
            [each / (1 + schedule.pieces)] * (1 + schedule.pieces) for each in seconds
        ]
        run_stage(comm, schedule, durations, layers.nbytes)
        return comm.Wtime()

    size = schedule.stages
    return max(sim.run(program, size, network(layers.network, size)))


def run_stage(
    comm: Any, schedule: Schedule, durations: Sequence[Sequence[float]], nbytes: int
) -> None:
    """Execute a stage, each piece as soon as its message has arrived.

    comm: communicator with one rank per stage.
    schedule: the schedule.
    durations: seconds of each part by piece: of a forward, and of those of a backward.
    nbytes: bytes of the activations between two parts.
    """
    stage = Stage(schedule, durations, nbytes)
    comm.Waitall(execute(comm, stage, stage_work(schedule, comm.rank)))


class Stage(NamedTuple):
    """Schedule, durations and size of messages of a stage; see `run_stage`."""

    schedule: Schedule
    durations: Sequence[Sequence[float]]
    nbytes: int


def execute(
    comm: Any, stage: Stage, work: Sequence[tuple[int, int, int]], run: int = 0
) -> list[Request]:
    """Execute pieces of a stage in order; return the requests of the sent messages.

    comm: communicator with one rank per stage.
    stage: schedule, durations and size of messages.
    work: piece, microbatch and part of each piece.
    run: number of the execution of the schedule, for the tags of messages.
    """
    schedule, durations, nbytes = stage
    stage_of, boundary = schedule.stage_of.tolist(), sim.Phantom(nbytes)
    awaited: dict[tuple[int, int, int], Request] = {}
    for key in work:
        needed = input_of(schedule, *key)
        if needed and stage_of[needed[2]] != comm.rank:
            source = stage_of[needed[2]]
            awaited[key] = comm.Irecv(boundary, source, tag(schedule, *key, run=run))
    sends = []
    for key in work:
        if request := awaited.get(key):
            request.Wait()
        comm.platform.compute(durations[key[2]][key[0]])
        target = output_of(schedule, *key)
        if target and stage_of[target[2]] != comm.rank:
            number = tag(schedule, *target, run=run)
            sends.append(comm.Isend(boundary, stage_of[target[2]], number))
    return sends


def tag(
    schedule: Schedule, piece: int, microbatch: int, part: int, run: int = 0
) -> int:
    """Return the tag of the message that a part needs for a piece of a microbatch."""
    number = (run * schedule.microbatches + microbatch) * schedule.parts + part
    return FIRST_TAG + number * (1 + schedule.pieces) + piece
