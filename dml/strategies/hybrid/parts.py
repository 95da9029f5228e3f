"""Parts of a model: consecutive layers, computed by one stage of a pipeline.

layers   embed  block_0 | block_1  block_2 | block_3  head
part           0                1                  2       one or more of a stage
pieces   embed, block_0 | block_1, block_2 | block_3, head   of one tick's backward
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
from jax.sharding import Mesh

from dml.types import BadInput, Layer, Params, Tensor
from dml.wire.mesh.axes import RING, local_shape
from dml.wire.mesh.packed import Packing, packing
from dml.wire.plans.pipelines import check_schedule
from dml.wire.plans.stages import balanced_parts as balanced

TRANSPOSED = "transposed"  # gpipe whose backward is JAX's transpose of the forward


class Pipeline(NamedTuple):
    """How a model is divided among stages, and the schedule of the stages.

    Attributes:
      schedule: Key of SCHEDULES, or TRANSPOSED.
      microbatches: Number of microbatches of a replica.
      rounds: Number of parts on each stage.
      remat: Whether only the inputs of pieces are saved.
      seconds: Seconds of each layer; empty: equal.
      pieces: Number of ticks of a backward.
    """

    schedule: str = "1f1b"
    microbatches: int = 1
    rounds: int = 1
    remat: bool = False
    seconds: Sequence[float] = ()
    pieces: int = 2

    @property
    def name(self) -> str:
        """Name of the schedule of ticks."""
        return "gpipe" if self.schedule == TRANSPOSED else self.schedule

    def ranges(self, layers: int, stages: int) -> list[range]:
        """Return the layers of each part."""
        return balanced(self.seconds or [1.0] * layers, stages * self.rounds)


class Part(NamedTuple):
    """Consecutive layers on one stage."""

    number: int
    stage: int
    round: int  # number of the part among the stage's parts
    pieces: list[list[Layer]]  # in the order of the forward; may be empty
    params: Packing  # by name: the slices on one device of the layers' params

    @property
    def layers(self) -> list[Layer]:
        return [layer for piece in self.pieces for layer in piece]

    @property
    def names(self) -> list[str]:
        """Names of the params that the layers read."""
        return names(self.layers)


def names(layers: Sequence[Layer]) -> list[str]:
    """Return the names of the params that layers read, without repetition."""
    return list(dict.fromkeys(name for layer in layers for name in layer.names))


def divide(model: Tensor, params: Params, axes: Mesh, pipeline: Pipeline) -> list[Part]:
    """Return the parts of a model.

    The layers of a part are divided into `pieces` of similar seconds; a part of fewer
    layers has empty pieces.

    Args:
      model: Layers of one device of the axis tensor.
      params: Params of the model, or their shapes.
      axes: The mesh.
      pipeline: Division among stages, and their schedule.
    """
    stages, size, layers = axes.shape["stage"], axes.shape["tensor"], model.layers
    check_schedule(pipeline.name, stages, pipeline.microbatches, pipeline.rounds)
    if RING in axes.axis_names and (stages > 1 or pipeline.schedule == "pipedream"):
        # a ppermute waits for the devices of all stages, not for those of one stage
        raise BadInput(
            f"expected one stage and no pipedream with the axis {RING}, got "
            f"stage:{stages} and {pipeline.schedule}; pass data, tensor and {RING}"
        )
    seconds = pipeline.seconds or [1.0] * len(layers)

    def slice_of(leaf: Any, spec: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(local_shape(leaf.shape, spec, size), leaf.dtype)

    def part(number: int, indices: range) -> Part:
        count = min(pipeline.pieces, len(indices))
        cuts = balanced([seconds[n] for n in indices], count)
        pieces = [[layers[indices[n]] for n in cut] for cut in cuts]
        pieces = [[] for _ in range(pipeline.pieces - count)] + pieces
        slices = {
            name: jax.tree.map(slice_of, params[name], model.specs[name])
            for name in names([layers[n] for n in indices])
        }
        return Part(number, number % stages, number // stages, pieces, packing(slices))

    ranges = pipeline.ranges(len(layers), stages)
    return [part(number, indices) for number, indices in enumerate(ranges)]


def shared(parts: Sequence[Part]) -> list[str]:
    """Return the names of params that more than one part reads."""
    readers = [name for part in parts for name in part.names]
    return [name for name in dict.fromkeys(readers) if readers.count(name) > 1]
