"""Words of the example of the paper, counted on virtual ranks."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from dml import sim
from dml.runs.writers import Row
from dml.types import Comm
from dml.wire.collectives.byteps import byteps_allreduce
from dml.wire.collectives.ring import ring_allreduce
from dml.wire.collectives.sharded_server import server_allreduce
from dml.wire.comm import Metered
from dml.wire.costs.factors import WORDS, Nodes, ProductSizes
from dml.wire.reducers.sufficient_factors import Columns, gather_factors

WORKERS = 8
PAPER = ProductSizes(32, 4096, 4096)


class Counted(Metered):
    """Counts the elements that each rank sends and receives."""

    def __init__(self, comm: Comm, words: np.ndarray):
        super().__init__(comm)
        self.words = words

    def count(self, operation: str, buffer: np.ndarray, dest: int) -> None:
        self.words[self.rank] += buffer.size
        self.words[dest] += buffer.size


class Role(NamedTuple):
    """A node whose words the paper counts.

    Attributes:
      name: Name of the role.
      scheme: A key of WORDS.
      nodes: The nodes of the cluster.
      published: Millions of words in the paper; None: not in the paper.
      exchange: (comm, sizes) -> None, on all nodes.
    """

    name: str
    scheme: str
    nodes: Nodes
    published: float | None
    exchange: Callable[[Comm, ProductSizes], None]


def by_factors(comm: Comm, sizes: ProductSizes) -> None:
    k, m, n = sizes
    pair = np.ones((k, m), np.int8), np.ones((k, n), np.int8)
    rows = {"w": [k] * comm.size}
    gather_factors(comm, {"w": pair}, {"w": Columns(m, n)}, rows, dtype=np.int8)


def by_sums(
    comm: Comm, sizes: ProductSizes, allreduce: Callable[..., None] = ring_allreduce
) -> None:
    # words are elements of any size: those of one byte take the least memory
    allreduce(comm, np.zeros(sizes.kernel, np.int8))


APART = partial(byteps_allreduce, spare=WORKERS)  # as many further nodes are servers
ALL, TWICE = Nodes(WORKERS, WORKERS), Nodes(WORKERS, WORKERS, both=False)
ROLES = (
    Role("worker by factors", "factors", ALL, 3.7, by_factors),
    Role("worker of servers", "server", TWICE, 34, partial(by_sums, allreduce=APART)),
    Role(
        "worker and server",
        "server",
        ALL,
        58.7,
        partial(by_sums, allreduce=server_allreduce),
    ),
    Role("ring all-reduce", "allreduce", ALL, None, by_sums),
)


def rows(sizes: ProductSizes = PAPER) -> Iterator[Row]:
    """Yield the counted and computed words of each role.

    Args:
      sizes: Sizes of the layer's product.
    """
    for role in ROLES:
        count = WORKERS * (1 if role.nodes.both else 2)
        words = np.zeros(count, np.int64)

        def program(comm: Comm, role: Role = role, words: np.ndarray = words) -> None:
            role.exchange(Counted(comm, words), sizes)

        sim.run(program, count)
        yield {
            "table": "example",
            "role": role.name,
            "counted": int(words[:WORKERS].max()),
            "formula": WORDS[role.scheme](sizes, role.nodes),
            "published": role.published and role.published * 1e6,
        }
