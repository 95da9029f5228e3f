"""The curvature of dense layers, its inverses, and preconditioned gradients of K-FAC.

    owner        curvature A, G ─► inverses      triangles of its layers
    row          inverses of the layers of all owners of the row, as squares
    column       preconditioned gradients of the layers of all rows

See `wire.plans.curvature` for the grid of ranks.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

import jax
import numpy as np

from dml.models.curvature import DenseLayer
from dml.types import BadInput, CountedComm
from dml.update import curvature as update
from dml.update.curvature import CurvatureRule, pack_triangle, unpack_triangle
from dml.wire.collectives.all_gather_parts import all_gather_parts
from dml.wire.comm.once import once_per_call
from dml.wire.plans.curvature import Grid, triangle

Pair = tuple[Any, Any]


class CurvatureState:
    """The curvature and inverses of one rank.

    Args:
      comm: Ranks.
      layers: The dense layers.
      grid: Owners and gradient workers of the layers.
      rule: Settings of K-FAC.
      state: Result of `collect` on any number of ranks; None: none.
    """

    def __init__(
        self,
        comm: CountedComm,
        layers: Sequence[DenseLayer],
        grid: Grid,
        rule: CurvatureRule,
        state: Mapping[str, Any] | None,
    ) -> None:
        self.layers, self.grid, self.rule = layers, grid, update.checked(rule)
        row, column = divmod(comm.rank, grid.columns)
        self.row = comm.Split(row, comm.rank)
        self.column = comm.Split(column, comm.rank)
        self.own = grid.owned[comm.rank]
        self.row_layers = grid.row_layers(row)
        members = range(row * grid.columns, (row + 1) * grid.columns)
        self.row_lengths = np.array([grid.triangles(rank) for rank in members])
        self.column_lengths = np.array([grid.elements(r) for r in range(grid.rows)])
        self.part = grid.parts[comm.rank]
        start = initial(grid) if state is None else state
        self.updates = int(start["updates"])  # number of preconditioned gradients
        self.curvature = np.array(start["curvature"][self.part])  # of own layers
        self.inverses: dict[int, Pair] = {}  # of the layers of the row
        if self.updates:
            self.gather_inverses(np.array(start["inverses"][self.part]))

    @property
    def nbytes(self) -> int:
        """Number of bytes of the curvature and inverses on this rank."""
        inverses = chain.from_iterable(self.inverses.values())
        return self.curvature.nbytes + sum(matrix.nbytes for matrix in inverses)

    def is_due(self, every: int) -> bool:
        """Return whether the number of updates is a multiple of `every`."""
        return self.updates % every == 0

    def average(self, mean: np.ndarray) -> None:
        """Add a minibatch's triangles of all layers to the running average."""
        # the first curvature has no earlier average
        weight = np.float32(self.rule.average if self.updates else 0)
        self.curvature *= weight
        self.curvature += (1 - weight) * mean[self.part]

    def invert(self) -> None:
        """Compute the inverses of own layers, and gather those of the row; collective.

        The owner, too, uses the inverses unpacked from their triangles: all gradient
        workers have equal bits.
        """
        damping = np.float32(self.rule.damping)
        pairs = [
            jax.device_get(update.inverses(*put((pair, damping))))
            for pair in self.unpack_pairs(self.own, self.curvature)
        ]
        own = np.empty_like(self.curvature)
        pack_pairs(pairs, own)
        self.gather_inverses(own)

    def gather_inverses(self, own: np.ndarray) -> None:
        """Gather the inverses of the layers of the row, as triangles; collective."""
        triangles = all_gather_parts(self.row, own, self.row_lengths)
        self.inverses = once_per_call(
            self.row, "inverses", partial(self.unpack_inverses, triangles)
        )

    def unpack_inverses(self, triangles: np.ndarray) -> dict[int, Pair]:
        """Return the inverses of the layers of the row on the device, by index."""
        pairs = self.unpack_pairs(self.row_layers, triangles)
        return dict(zip(self.row_layers, map(put, pairs), strict=True))

    def unpack_pairs(
        self, indices: Sequence[int], triangles: np.ndarray
    ) -> Iterator[Pair]:
        """Yield both matrices of each layer from a vector of their triangles."""
        start = 0
        for index in indices:
            matrices = []
            for order in self.layers[index].sizes:
                stop = start + triangle(order)
                matrices.append(unpack_triangle(triangles[start:stop], order))
                start = stop
            yield matrices[0], matrices[1]

    def precondition(self, grads: Mapping[str, Any]) -> np.ndarray:
        """Return the preconditioned gradients of all layers as a vector; collective.

        Args:
          grads: Mean gradients by path.
        """
        own = once_per_call(
            self.row, "gradients", partial(self.precondition_row, grads)
        )
        vector = all_gather_parts(self.column, own, self.column_lengths)
        # order matters: after the gather, so that all ranks raise or none does
        if not finite([vector]) and finite(grads.values()):
            raise BadInput(
                "expected a positive definite curvature, got a singular one with a "
                f"damping of {self.rule.damping:g}; pass a larger --damping"
            )
        self.updates += 1
        return vector

    def precondition_row(self, grads: Mapping[str, Any]) -> np.ndarray:
        """Return the preconditioned gradients of the layers of the row."""
        done = [
            update.precondition(
                self.inverses[index], put(layer_gradient(self.layers[index], grads))
            )
            for index in self.row_layers
        ]
        empty = np.empty(0, np.float32)
        return np.concatenate(
            [empty, *(each.reshape(-1) for each in map(np.asarray, done))]
        )

    def scale(self, vector: np.ndarray, grads: Mapping[str, Any]) -> np.float32:
        """Return the factor by which preconditioned gradients satisfy the limit."""
        if not self.rule.limit:
            return np.float32(1)
        gradients = [layer_gradient(layer, grads).reshape(-1) for layer in self.layers]
        product = float(np.vdot(np.concatenate(gradients), vector))
        return np.float32(min(1.0, (self.rule.limit / max(product, 1e-30)) ** 0.5))

    def leaves(self, vector: np.ndarray, like: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parts of a vector of gradients of all layers, by path.

        Args:
          vector: Gradients of the layers; the bias is the last row of a layer.
          like: Arrays with the shapes and dtypes of the parameters, by path.
        """
        leaves, start = {}, 0
        for layer in self.layers:
            stop = start + layer.sizes.elements
            rows = vector[start:stop].reshape(layer.sizes)
            kernel = rows[:-1] if layer.bias else rows
            leaves[layer.kernel] = kernel
            if layer.bias:
                leaves[layer.bias] = rows[-1]
            start = stop
        return {
            path: leaf.reshape(like[path].shape).astype(like[path].dtype, copy=False)
            for path, leaf in leaves.items()
        }

    def collect(self, comm: CountedComm) -> dict[str, Any]:
        """Return the curvature and inverses of all layers; collective."""
        lengths = np.array([self.grid.triangles(rank) for rank in range(comm.size)])
        own = np.zeros_like(self.curvature)
        if self.inverses:
            pairs = jax.device_get([self.inverses[index] for index in self.own])
            pack_pairs(pairs, own)
        return {
            "curvature": all_gather_parts(comm, self.curvature, lengths),
            "inverses": all_gather_parts(comm, own, lengths),
            "updates": np.int32(self.updates),
        }


def initial(grid: Grid) -> dict[str, Any]:
    """Return the `collect` of a run without updates."""
    zeros = np.zeros(grid.length, np.float32)
    return {"curvature": zeros, "inverses": zeros, "updates": np.int32(0)}


def layer_gradient(layer: DenseLayer, grads: Mapping[str, Any]) -> np.ndarray:
    """Return the gradient of a layer as a matrix, with the bias as the last row."""
    kernel = np.asarray(grads[layer.kernel], np.float32)
    matrix = kernel.reshape(-1, layer.sizes.outputs)
    if not layer.bias:
        return matrix
    return np.concatenate([matrix, np.reshape(grads[layer.bias], (1, -1))])


def finite(arrays: Iterable[Any]) -> bool:
    """Return whether all elements are finite."""
    return all(np.isfinite(array).all() for array in arrays)


def put(tree: Any) -> Any:
    return jax.device_put(tree, jax.local_devices()[0])


def pack_pairs(
    pairs: Sequence[Pair] | None, buffer: np.ndarray, weight: float = 1.0
) -> None:
    """Write the triangles of pairs of matrices, times a weight, to a vector.

    Args:
      pairs: A and G of each layer; None writes zeros.
      buffer: The vector.
      weight: The weight.
    """
    if pairs is None:
        buffer[:] = 0
        return
    start = 0
    for matrix in chain.from_iterable(pairs):
        stop = start + triangle(len(matrix))
        pack_triangle(np.asarray(matrix), buffer[start:stop], weight)
        start = stop
