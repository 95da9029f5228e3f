"""Communicators with a topology, and collective calls of neighbours."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dml.sim.mpi import topologies
from dml.sim.mpi.channel import Call, Channel
from dml.sim.mpi.collectives import likes
from dml.sim.mpi.constants import error
from dml.sim.mpi.handles import NAMED
from dml.sim.mpi.intracomm import KINDS, Intracomm
from dml.sim.mpi.messages import Block, simple, typed, vector
from dml.sim.mpi.methods import add_methods
from dml.sim.mpi.pickles import pickle
from dml.sim.transfer import Accepting
from dml.types import PROC_NULL


class Weights(int):
    """UNWEIGHTED or WEIGHTS_EMPTY."""


UNWEIGHTED, WEIGHTS_EMPTY = Weights(-1), Weights(-2)


def is_weights(given: Any) -> bool:
    return given is not None and not isinstance(given, Weights)


class Topocomm(Intracomm):
    """A communicator with a topology."""

    @property
    def placed_at(self) -> Any:
        return self.need("Topocomm").topology

    @property
    def inoutedges(self) -> tuple[list[int], list[int]]:
        inward, outward = self.placed_at.edges(self.Get_rank())
        return [*inward], [*outward]

    inedges = property(lambda self: self.inoutedges[0])
    outedges = property(lambda self: self.inoutedges[1])
    indegree = property(lambda self: len(self.inedges))
    outdegree = property(lambda self: len(self.outedges))
    degrees = property(lambda self: (self.indegree, self.outdegree))

    def neighbor_allgather(self, sendobj: Any) -> list[Any]:
        data = pickle.dumps(sendobj)
        return self.of_neighbors("Neighbor_allgather", [data] * self.outdegree)

    def neighbor_alltoall(self, sendobj: Sequence[Any]) -> list[Any]:
        values = [pickle.dumps(one) for one in sendobj]
        if len(values) != self.outdegree:
            raise ValueError(
                f"neighbor_alltoall: expected {self.outdegree} objects, got "
                f"{len(values)}"
            )
        return self.of_neighbors("Neighbor_alltoall", values)

    def of_neighbors(self, name: str, values: list[bytes]) -> list[Any]:
        topology, rank = self.placed_at, self.Get_rank()
        found: list[Any] = [None] * self.indegree

        def body(channel: Channel) -> None:
            out = [np.frombuffer(value, np.uint8) for value in values]
            takes = [
                Accepting(lambda data, _, k=k: found.__setitem__(k, data.copy()))
                for k in range(len(found))
            ]
            exchange(channel, topology, rank, out, takes)

        self.held.collective(Call[name], body)
        return [None if one is None else pickle.loads(one) for one in found]


def exchange(
    channel: Channel, topology: Any, rank: int, out: list[Any], into: list[Any]
) -> None:
    """Send a vector to each destination, and receive one from each source."""
    inward, outward = topology.edges(rank)
    tags = topology.tags() or ([0] * len(inward), [0] * len(outward))
    base = 1000  # above the tags of other calls
    receives = [
        channel.comm.Irecv(buffer, source, base + tag)
        for buffer, source, tag in zip(into, inward, tags[0], strict=True)
        if source != PROC_NULL
    ]
    sends = [
        channel.post(data, dest, base + tag)
        for data, dest, tag in zip(out, outward, tags[1], strict=True)
        if dest != PROC_NULL
    ]
    for request in (*receives, *sends):
        request.Wait()
    for source in inward:
        channel.received(source)


def between(self: Any, out: list[Block], into: list[Block]) -> Callable[..., None]:
    """Return the body of an exchange of blocks with the neighbours."""
    topology, rank = self.placed_at, self.Get_rank()

    def body(channel: Channel) -> None:
        inward, _ = topology.edges(rank)
        arrays = [np.empty(like.shape, np.uint8) for like in likes(into)]
        exchange(channel, topology, rank, [block.pack() for block in out], arrays)
        for block, array, source in zip(into, arrays, inward, strict=True):
            if source != PROC_NULL:
                block.unpack(array)

    return body


def Neighbor_allgather(self: Any, sendbuf: Any, recvbuf: Any) -> Any:
    inward, outward = self.degrees
    first = simple(recvbuf, False, inward)
    own = simple(sendbuf, True)
    return between(self, [own] * outward, [first.at(k) for k in range(inward)])


def Neighbor_allgatherv(self: Any, sendbuf: Any, recvbuf: Any) -> Any:
    inward, outward = self.degrees
    own = simple(sendbuf, True)
    return between(self, [own] * outward, vector(recvbuf, False, inward))


def Neighbor_alltoall(self: Any, sendbuf: Any, recvbuf: Any) -> Any:
    inward, outward = self.degrees
    source, first = simple(sendbuf, True, outward), simple(recvbuf, False, inward)
    out = [source.at(k) for k in range(outward)]
    return between(self, out, [first.at(k) for k in range(inward)])


def Neighbor_alltoallv(self: Any, sendbuf: Any, recvbuf: Any) -> Any:
    inward, outward = self.degrees
    return between(self, vector(sendbuf, True, outward), vector(recvbuf, False, inward))


def Neighbor_alltoallw(self: Any, sendbuf: Any, recvbuf: Any) -> Any:
    inward, outward = self.degrees
    return between(self, typed(sendbuf, True, outward), typed(recvbuf, False, inward))


add_methods(
    Topocomm,
    {
        function.__name__: function
        for function in (
            *(Neighbor_allgather, Neighbor_allgatherv, Neighbor_alltoall),
            *(Neighbor_alltoallv, Neighbor_alltoallw),
        )
    },
)


class Cartcomm(Topocomm):
    """A communicator of a grid."""

    def Get_dim(self) -> int:
        return len(self.placed_at.dims)

    dim = property(Get_dim)
    ndim = property(Get_dim)
    dims = property(lambda self: [*self.placed_at.dims])
    periods = property(lambda self: [*self.placed_at.periods])
    coords = property(lambda self: self.Get_coords(self.Get_rank()))

    def Get_topo(self) -> tuple[list[int], list[bool], list[int]]:
        return self.dims, self.periods, self.coords

    topo = property(Get_topo)

    def Get_coords(self, rank: int) -> list[int]:
        if not 0 <= rank < self.Get_size():
            raise error(
                "ERR_RANK",
                f"Cartcomm.Get_coords: expected a rank below {self.Get_size()}, got "
                f"{rank}",
            )
        return self.placed_at.coords(rank)

    def Get_cart_rank(self, coords: Sequence[int]) -> int:
        topology = self.placed_at
        places = [int(place) for place in coords]
        if len(places) != len(topology.dims):
            raise ValueError(
                f"Cartcomm.Get_cart_rank: expected {len(topology.dims)} coordinates, "
                f"got {len(places)}"
            )
        rank = topology.rank(places)
        if rank == PROC_NULL:
            raise error(
                "ERR_ARG",
                f"Cartcomm.Get_cart_rank: expected coordinates within {topology.dims}, "
                f"got {places}",
            )
        return rank

    def Shift(self, direction: int, disp: int) -> tuple[int, int]:
        """Return the source and the destination of a shift."""
        return self.placed_at.shift(self.Get_rank(), direction, disp)

    def Sub(self, remain_dims: Sequence[bool]) -> Any:
        """Return a communicator of the ranks that differ in the remaining axes."""
        topology, coords = self.placed_at, self.coords
        kept = [bool(flag) for flag in remain_dims]
        if len(kept) != len(coords):
            raise ValueError(
                f"Cartcomm.Sub: expected {len(coords)} flags, got {len(kept)}"
            )
        color = 0
        for place, side, keep in zip(coords, topology.dims, kept, strict=True):
            color = color if keep else color * side + place
        made = self.split(self.held, color, self.Get_rank(), Cartcomm)
        chosen = [k for k, keep in enumerate(kept) if keep]
        made.held.topology = topologies.Cart(
            [topology.dims[k] for k in chosen], [topology.periods[k] for k in chosen]
        )
        return made


class Graphcomm(Topocomm):
    """A communicator of a graph."""

    def Get_dims(self) -> tuple[int, int]:
        topology = self.placed_at
        return len(topology.index), len(topology.edges_)

    dims = property(Get_dims)
    nnodes = property(lambda self: self.Get_dims()[0])
    nedges = property(lambda self: self.Get_dims()[1])
    index = property(lambda self: [*self.placed_at.index])
    edges = property(lambda self: [*self.placed_at.edges_])

    def Get_topo(self) -> tuple[list[int], list[int]]:
        return self.index, self.edges

    topo = property(Get_topo)

    def Get_neighbors(self, rank: int) -> list[int]:
        return [*self.placed_at.neighbors(rank)]

    def Get_neighbors_count(self, rank: int) -> int:
        return len(self.Get_neighbors(rank))

    neighbors = property(lambda self: self.Get_neighbors(self.Get_rank()))
    nneighbors = property(lambda self: len(self.neighbors))


class Distgraphcomm(Topocomm):
    """A communicator of a graph of which each rank knows its neighbours."""

    def Get_dist_neighbors_count(self) -> tuple[int, int, bool]:
        topology = self.placed_at
        weighted = topology.weights is not None
        return len(topology.sources), len(topology.destinations), weighted

    def Get_dist_neighbors(self) -> tuple[list[int], list[int], Any]:
        topology = self.placed_at
        return [*topology.sources], [*topology.destinations], topology.weights


def Create_dist_graph_adjacent(
    self: Any,
    sources: Sequence[int] | None,
    destinations: Sequence[int] | None,
    sourceweights: Any = None,
    destweights: Any = None,
    info: Any = NAMED["INFO_NULL"],
    reorder: bool = False,
) -> Distgraphcomm:
    """Return a communicator of a graph from the neighbours of each rank."""
    inward = [int(rank) for rank in sources or ()]
    outward = [int(rank) for rank in destinations or ()]
    weights: Any = None
    given = (sourceweights, destweights)
    for ranks, one in ((inward, sourceweights), (outward, destweights)):
        if one is WEIGHTS_EMPTY and ranks or is_weights(one) and len(one) != len(ranks):
            raise ValueError(
                f"Create_dist_graph_adjacent: expected {len(ranks)} weights, got {one}"
            )
    if any(is_weights(one) or one is WEIGHTS_EMPTY for one in given):
        weights = tuple([*one] if is_weights(one) else [] for one in given)
    held = self.need("Intracomm.Create_dist_graph_adjacent")
    for rank in (*inward, *outward):
        held.peer("Create_dist_graph_adjacent", "neighbour", rank)
    topology = topologies.DistGraph(inward, outward, weights)
    return self.placed("Create_dist_graph", topology, held.size, Distgraphcomm)


def Create_dist_graph(
    self: Any,
    sources: Sequence[int],
    degrees: Sequence[int],
    destinations: Sequence[int],
    weights: Any = None,
    info: Any = NAMED["INFO_NULL"],
    reorder: bool = False,
) -> Distgraphcomm:
    """Return a communicator of a graph from edges that any rank may give."""
    heads = [int(rank) for rank in destinations]
    tails = [
        int(source)
        for source, n in zip(sources, degrees, strict=True)
        for _ in range(n)
    ]
    if len(tails) != len(heads):
        raise ValueError(
            f"Create_dist_graph: expected {len(tails)} destinations, got {len(heads)}"
        )
    weighted = is_weights(weights) or weights is WEIGHTS_EMPTY
    values = [*weights] if is_weights(weights) else [1] * len(heads)
    rank = self.Get_rank()
    given = self.allgather((weighted, [*zip(tails, heads, values, strict=True)]))
    edges = [edge for _, part in given for edge in part]
    inward = [(tail, value) for tail, head, value in edges if head == rank]
    outward = [(head, value) for tail, head, value in edges if tail == rank]
    kept = None
    if any(flag for flag, _ in given):
        kept = [value for _, value in inward], [value for _, value in outward]
    topology = topologies.DistGraph(
        [tail for tail, _ in inward], [head for head, _ in outward], kept
    )
    return self.placed("Create_dist_graph", topology, self.Get_size(), Distgraphcomm)


for kind in (Topocomm, Cartcomm, Graphcomm, Distgraphcomm):
    KINDS[kind.__name__] = kind
    kind.exact = kind
for method in (Create_dist_graph, Create_dist_graph_adjacent):
    method.__qualname__ = f"Intracomm.{method.__name__}"
    setattr(Intracomm, method.__name__, method)
