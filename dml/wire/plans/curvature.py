"""Owners and gradient workers of K-FAC, on a grid of ranks (KAISA, Pauloski 2021).

              column 0  column 1
    row 0        0         1       layers a b c: a on rank 0; b, c on rank 1
    row 1        2         3       layers d e:   d on rank 2; e on rank 3

    curvature    summed on the owner of a layer, and inverted there
    inverses     gathered in the owner's row: the gradient workers of the layer
    gradients    preconditioned by the row, and gathered in each column

One row of p ranks (fraction 1) sends no gradients, but stores all inverses on all
ranks. One column (fraction 1/p) sends no inverses, and stores each once. In between,
the fraction exchanges memory for words.

Pure arithmetic.
"""

from collections.abc import Sequence
from typing import NamedTuple

from dml.types import BadInput
from dml.wire.plans.pipeline.stages import balanced_parts


class Layer(NamedTuple):
    """Orders of the two symmetric matrices of a dense layer."""

    inputs: int
    outputs: int

    @property
    def triangles(self) -> int:
        """Number of elements of both lower triangles, with the diagonals."""
        return triangle(self.inputs) + triangle(self.outputs)

    @property
    def squares(self) -> int:
        """Number of elements of both matrices."""
        return self.inputs**2 + self.outputs**2

    @property
    def elements(self) -> int:
        """Number of elements of the gradient of kernel and bias."""
        return self.inputs * self.outputs


class Grid(NamedTuple):
    """Layers by owner, on a grid of ranks in rows.

    Attributes:
      layers: Orders of the matrices of each layer.
      owned: Indices of the layers of each rank, consecutive; empty for some ranks if
        there are fewer layers than ranks.
      columns: Number of ranks of a row: the gradient workers of a layer.
    """

    layers: Sequence[Layer]
    owned: Sequence[range]
    columns: int

    @property
    def ranks(self) -> int:
        return len(self.owned)

    @property
    def rows(self) -> int:
        return self.ranks // self.columns

    def row_layers(self, row: int) -> list[int]:
        """Return the indices of the layers of a row."""
        owned = self.owned[row * self.columns :][: self.columns]
        return [index for own in owned for index in own]

    def triangles(self, rank: int) -> int:
        """Return the number of elements of the triangles of a rank's layers."""
        return sum(self.layers[index].triangles for index in self.owned[rank])

    def elements(self, row: int) -> int:
        """Return the number of elements of the gradients of a row's layers."""
        return sum(self.layers[index].elements for index in self.row_layers(row))

    @property
    def length(self) -> int:
        """Number of elements of the triangles of all layers."""
        return sum(layer.triangles for layer in self.layers)

    @property
    def parts(self) -> list[slice]:
        """The part of each rank in the vector of the triangles of all layers."""
        parts, start = [], 0
        for rank in range(self.ranks):
            stop = start + self.triangles(rank)
            parts.append(slice(start, stop))
            start = stop
        return parts


class Words(NamedTuple):
    """Elements that all ranks send at once.

    Attributes:
      curvature: Triangles of the curvature, to the owners.
      inverses: Triangles of the inverses, in rows.
      gradients: Preconditioned gradients, in columns.
    """

    curvature: int
    inverses: int
    gradients: int


def grid(layers: Sequence[Layer], ranks: int, fraction: float) -> Grid:
    """Return the grid, in which the largest work of an owner is minimal.

    Args:
      layers: Orders of the matrices of each layer.
      ranks: Number of ranks.
      fraction: Fraction of the ranks that are gradient workers of a layer.
    """
    columns = max(1, round(fraction * ranks))
    if ranks % columns or abs(columns - fraction * ranks) > 1e-3:
        possible = [n for n in range(1, ranks + 1) if ranks % n == 0]
        names = ", ".join("1" if n == ranks else f"{n}/{ranks}" for n in possible)
        nearest = min(possible, key=lambda n: abs(n - fraction * ranks))
        raise BadInput(
            f"expected a fraction of {names} of {ranks} ranks, got {fraction:g}; pass "
            f"--fraction={nearest / ranks:.4g}"
        )
    count = len(layers)
    work = [layer.inputs**3 + layer.outputs**3 for layer in layers]
    owned = balanced_parts(work, min(ranks, count)) if count else []
    owned += [range(count, count)] * (ranks - len(owned))
    return Grid(layers, owned, columns)


def words(grid: Grid) -> Words:
    """Return the elements that are sent for all layers."""
    elements = sum(layer.elements for layer in grid.layers)
    return Words(
        curvature=(grid.ranks - 1) * grid.length,
        inverses=(grid.columns - 1) * grid.length,
        gradients=(grid.ranks - grid.columns) * elements,
    )


def nbytes(grid: Grid, rank: int, shards: int = 1, itemsize: int = 4) -> int:
    """Return the bytes of curvature and inverses on a rank.

    These are the triangles of own layers, the inverses of the layers of the row as
    squares, and the buffers of the sum: the triangles of all layers for each shard.

    Args:
      grid: Owners and gradient workers.
      rank: The rank.
      shards: Number of logical shards of the rank.
      itemsize: Bytes of an element.
    """
    row = grid.row_layers(rank // grid.columns)
    squares = sum(grid.layers[index].squares for index in row)
    return itemsize * (grid.triangles(rank) + squares + shards * grid.length)


def triangle(order: int) -> int:
    """Return the number of elements of a lower triangle with its diagonal."""
    return order * (order + 1) // 2
