"""Parts of a model: consecutive layers, computed by one stage of a pipeline.

layers   embed  block_0 | block_1  block_2 | block_3  head
part           0                1                  2       a stage has one or more parts
pieces   embed, block_0 | block_1, block_2 | block_3, head   layers separated by commas

The backward of a piece takes one tick of the schedule.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
from jax.sharding import Mesh

from dml.types import BadInput, Layer, Params, Tensor
from dml.types.ranges import Count
from dml.wire.mesh.axes import RING, local_shape
from dml.wire.mesh.packed import Packing, packing
from dml.wire.plans.pipeline.schedules import SPLIT, check_schedule, make
from dml.wire.plans.pipeline.stages import balanced_parts

TRANSPOSED = "transposed"  # GPipe; the backward is JAX's transpose of the forward


class Pipeline(NamedTuple):
    """The division of a model among stages, and the schedule of the stages.

    Attributes:
      schedule: Key of SCHEDULES, or TRANSPOSED.
      microbatches: Number of microbatches of a replica.
      rounds: Number of parts on each stage.
      remat: Whether a piece saves only its input, and its backward recomputes the
        other activations.
      seconds: Seconds of each layer, by which parts are balanced; empty: all equal.
      pieces: Number of pieces of a part, and of ticks of its backward. In zero-bubble
        schedules each layer is a piece; a tick computes the input gradients of all
        pieces of a part, or their weight gradients.
    """

    schedule: str = "1f1b"
    microbatches: Count = 1
    rounds: Count = 1
    remat: bool = False
    seconds: Sequence[float] = ()
    pieces: Count = 2

    @property
    def name(self) -> str:
        """Key of the schedule in SCHEDULES."""
        return "gpipe" if self.schedule == TRANSPOSED else self.schedule

    @property
    def split(self) -> bool:
        """Whether input and weight gradients have separate ticks."""
        return self.name in SPLIT

    def ranges(self, layers: int, stages: int) -> list[range]:
        """Return the layers of each part."""
        return balanced_parts(self.seconds or [1.0] * layers, stages * self.rounds)


class StagePart(NamedTuple):
    """Consecutive layers on one stage."""

    number: int  # index of the part in the model
    stage: int
    round: int  # index of the part on its stage
    pieces: list[list[Layer]]  # in the order of the forward; a piece may be empty
    params: Packing  # by name: slices of the params on one device

    @property
    def layers(self) -> list[Layer]:
        return [layer for piece in self.pieces for layer in piece]

    @property
    def names(self) -> list[str]:
        """Names of the params that the layers read."""
        return names(self.layers)


def names(layers: Sequence[Layer]) -> list[str]:
    """Return the distinct names of the params that layers read, in order."""
    return list(dict.fromkeys(name for layer in layers for name in layer.names))


def divide(
    model: Tensor, params: Params, axes: Mesh, pipeline: Pipeline
) -> list[StagePart]:
    """Return the parts of a model.

    The layers of a part are divided into pieces of similar seconds. A part with fewer
    layers than pieces has empty pieces.

    Args:
      model: Layers, sharded over the axis tensor.
      params: Params of the model, or their shapes.
      axes: The mesh.
      pipeline: Division of the layers among stages, and the schedule of the stages.
    """
    stages, tensor_size = axes.shape["stage"], axes.shape["tensor"]
    layers = model.layers
    check_schedule(
        pipeline.name,
        stages,
        pipeline.microbatches,
        pipeline.rounds,
        pipeline.pieces,
    )
    if RING in axes.axis_names and (stages > 1 or pipeline.schedule == "pipedream"):
        # a ppermute waits for the devices of all stages, not only of one stage
        raise BadInput(
            f"expected 1 stage and no pipedream with the axis {RING}, got "
            f"stage:{stages} and --pipeline={pipeline.schedule}; pass --mesh with the "
            f"axes data, tensor and {RING} only, and another --pipeline"
        )
    seconds = pipeline.seconds or [1.0] * len(layers)

    def local_slice(leaf: Any, spec: Any) -> jax.ShapeDtypeStruct:
        shape = local_shape(leaf.shape, spec, tensor_size)
        return jax.ShapeDtypeStruct(shape, leaf.dtype)

    def part(number: int, indices: range) -> StagePart:
        wanted = len(indices) if pipeline.split else pipeline.pieces
        count = min(wanted, len(indices))
        ranges = balanced_parts([seconds[n] for n in indices], count)
        pieces = [[layers[indices[n]] for n in piece] for piece in ranges]
        pieces = [[] for _ in range(wanted - count)] + pieces
        slices = {
            name: jax.tree.map(local_slice, params[name], model.specs[name])
            for name in names([layers[n] for n in indices])
        }
        stage = int(stage_of[number])
        return StagePart(number, stage, number // stages, pieces, packing(slices))

    stage_of = make(pipeline.name, stages, 1, pipeline.rounds, pipeline.pieces).stage_of
    ranges = pipeline.ranges(len(layers), stages)
    return [part(number, indices) for number, indices in enumerate(ranges)]


def shared_names(parts: Sequence[StagePart]) -> list[str]:
    """Return the names of params that more than one part reads."""
    counts = Counter(name for part in parts for name in part.names)
    return [name for name, count in counts.items() if count > 1]
