"""Words of the exchanges of a dense layer's gradient, and the cheapest of them.

The gradient of an M x N kernel is a product of a K x M and a K x N matrix, its
sufficient factors. Poseidon (Zhang 2017, section 3.2) exchanges it in one of two ways,
to which an all-reduce is added here. The words that a node sends and receives:

    factors      workers send K(M + N) words to each other: 2K(P1-1)(M + N)
    server       each of P2 servers has MN/P2 of the kernel; all workers push gradients
                 and pull sums: a worker 2MN, a server 2P1·MN/P2, a node with both
                 roles 2MN(P1 + P2 - 2)/P2
    allreduce    reduce-scatter and all-gather among the workers: 4MN(P1-1)/P1

P1 is the number of workers, P2 of servers. If all nodes have both roles, `server` and
`allreduce` send equally many words.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from dml.types import BadInput


class ProductSizes(NamedTuple):
    """The sizes of a product: a K x M matrix, transposed, times a K x N matrix.

    Attributes:
      rows: Number K of rows of both factors: examples of a worker, or their tokens.
      inputs: Number M of columns of the first factor.
      outputs: Number N of columns of the second factor.
    """

    rows: int
    inputs: int
    outputs: int

    @property
    def kernel(self) -> int:
        """Return the number of elements of the product."""
        return self.inputs * self.outputs

    @property
    def factors(self) -> int:
        """Return the number of elements of both factors."""
        return self.rows * (self.inputs + self.outputs)


class Nodes(NamedTuple):
    """The nodes of a cluster.

    Attributes:
      workers: Number P1 of workers.
      servers: Number P2 of parameter servers.
      both: Whether servers are on nodes of workers; otherwise they are further nodes.
    """

    workers: int
    servers: int
    both: bool = True


def factor_words(sizes: ProductSizes, nodes: Nodes) -> float:
    """Return the words that a worker sends and receives by factors."""
    return 2 * sizes.factors * (nodes.workers - 1)


def server_words(sizes: ProductSizes, nodes: Nodes) -> float:
    """Return the words of the node with most of them, by parameter servers."""
    workers, servers = nodes.workers, nodes.servers
    if nodes.both:
        return 2 * sizes.kernel * (workers + servers - 2) / servers
    return 2 * sizes.kernel * max(1.0, workers / servers)


def allreduce_words(sizes: ProductSizes, nodes: Nodes) -> float:
    """Return the words that a worker sends and receives by a ring all-reduce."""
    return 4 * sizes.kernel * (nodes.workers - 1) / nodes.workers


# In the order of preference among equal words: factors first, as in the paper.
WORDS: dict[str, Callable[[ProductSizes, Nodes], float]] = {
    "factors": factor_words,
    "allreduce": allreduce_words,
    "server": server_words,
}


def choose(
    sizes: ProductSizes, nodes: Nodes, schemes: Sequence[str] = tuple(WORDS)
) -> str:
    """Return the exchange with the fewest words: the rule of HybComm.

    With the schemes "factors" and "server" it is the rule of the paper: factors if
    2K(P1-1)(M + N) ≤ 2MN(P1 + P2 - 2)/P2.

    Args:
      sizes: Sizes of the product.
      nodes: Numbers of workers and servers.
      schemes: Exchanges to choose from, in order of preference.
    """
    if min(*sizes, *nodes[:2]) < 1:
        raise BadInput(
            f"expected sizes and nodes of 1 or more, got {sizes} and {nodes}; correct "
            "them"
        )
    return min(schemes, key=lambda scheme: WORDS[scheme](sizes, nodes))


def last_factor_nodes(sizes: ProductSizes, most: int = 1 << 20) -> int:
    """Return the most workers, each also a server, for which factors are chosen.

    Factors are chosen if PK(M + N) ≤ 2MN; 1 if this holds for no P above 1.

    Args:
      sizes: Sizes of the product on each worker.
      most: Greatest returned number.
    """
    return max(1, min(most, 2 * sizes.kernel // sizes.factors))


def sent_factors(rows: Sequence[int], inputs: int, outputs: int) -> list[int]:
    """Return the words that each rank sends in a ring all-gather of all factors.

    Args:
      rows: Number of rows of each rank.
      inputs: Number of columns of the first factor.
      outputs: Number of columns of the second factor.
    """
    size, width = len(rows), inputs + outputs
    # rank r sends the parts of all ranks except its successor's
    return [(sum(rows) - rows[(rank + 1) % size]) * width for rank in range(size)]
