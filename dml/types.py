"""Every contract between the stages, and nothing else."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

Params = Any  # a pytree of arrays
Grads = Any  # a pytree shaped like Params: what goes into an optimizer
Op = np.ufunc  # how two buffers become one: np.add, np.maximum, ...


def itself(value: Any) -> Any:
    """Return the value: the default of calls that change nothing."""
    return value


def nothing(*arguments: Any) -> None:
    """Do nothing: the default of calls without a task."""


class BadInput(ValueError):
    """Bad flags, files or sizes: experiments print one line and exit with code 2."""


class Batch(NamedTuple):
    """One minibatch: the first axis of every array counts the examples."""

    inputs: Any
    targets: Any


class Ratings(NamedTuple):
    """What users gave to items; both are rows of one table, users' rows come first."""

    users: np.ndarray  # int32
    items: np.ndarray  # int32
    values: np.ndarray  # float32


class Rows(NamedTuple):
    """A sparse gradient: values[i] belongs to row index[i]."""

    index: np.ndarray | slice  # type: ignore[assignment]  # hides tuple.index
    values: np.ndarray


class Touching(NamedTuple):
    """A minibatch of a table's examples, and the rows that they touch."""

    indices: np.ndarray
    rows: np.ndarray | slice


class Edges(NamedTuple):
    """What updates touch: edge e has rows[starts[e] : starts[e + 1]] of a table.

    Each of them once, rising. An edge is an example whose loss depends on few rows.
    """

    starts: np.ndarray  # int64, one more than there are edges
    rows: np.ndarray  # uint32


class Embeddings(NamedTuple):
    """Rows of vectors, each with a bias, and what AdaGrad has summed for each number.

    T rows: one a word where there is one table; else V words, then V contexts.
    """

    vectors_TxD: np.ndarray
    biases_T: np.ndarray
    vector_squares_TxD: np.ndarray
    bias_squares_T: np.ndarray


class Examples(NamedTuple):
    """Data that is made when it is asked for: a minibatch from the numbers of draws.

    Draw d is example d % count, in epoch d // count. What is random about it, such as
    which words are masked, depends on its number alone.
    """

    count: int  # type: ignore[assignment]  # hides tuple.count
    take: Callable[[np.ndarray], Batch]


class Layer(NamedTuple):
    """A part of a model: the first gets None, the last gives the loss."""

    names: tuple[str, ...]  # of params: those that it reads; two layers may share one
    # its params by name, what the layer before it gave, the batch -> what it gives
    apply: Callable[[Mapping[str, Params], Any, Any], Any]


class Model(NamedTuple):
    """Pure functions; loss is the mean over the batch's examples.

    A batch is a Batch, or what its model says.
    """

    init: Callable[[Any], Params]  # random key -> params
    loss: Callable[[Params, Any], Any]  # -> scalar
    metrics: Callable[[Params, Any], Mapping[str, Any]]  # -> means over the batch
    layers: Sequence[Layer] = ()  # the loss cut into parts; params are then by name
    scores: Callable[[Params, Any], Any] | None = None  # a batch's inputs -> log-odds


class SparseModel(Protocol):
    """What a module of models offers for updates edge by edge; kernels close over it.

    Its data is a NamedTuple of arrays whose first field is `edges`; a table is T
    numbers or TxD. The first two are compiled, without fast math: bits depend on no
    inlining.
    """

    # table, data, edge, step of the epoch, grads -> the edge's loss, and whether there
    # is a gradient: then grads[s] is that of its s-th row
    gradient: Callable[..., tuple[float, bool]]
    # table, row, grads, s, rate: grads[s] becomes what the row is to be changed by
    move: Callable[..., None]

    def __hash__(self) -> int: ...

    def decay(self, data: Any) -> float:
        """Return the weight of half the squared table that `settle` applies.

        It is 0 where the gradients of edges have the norm.
        """
        ...

    def paced(self, data: Any, rate: float) -> Any:
        """Return the data for an epoch at this rate; at 0 `settle` changes nothing."""
        ...

    def settle(self, table: np.ndarray, data: Any, steps: int) -> None:
        """Make the table, or some of its rows, what it stands for after these steps."""
        ...

    def objective(self, table: np.ndarray, data: Any) -> float:
        """Return the mean loss of all edges, with the norm."""
        ...


class Kernel(NamedTuple):
    """Compiled descent, in place, over one example after another.

    data: arrays that all workers of a host read; a model's has the field `edges` first.
    model: the gradient of an edge and the change of a row.
    fused: (table, data, blocks, rate) -> the summed loss of the examples of these
        blocks; it changes the table by each. It replaces the model.
    sizes: examples of each block; None: all blocks are equally long.
    blocks: rows that rotation moves together; those of a second side come last.
    sides: 2 where an example has a row of each of two sides, 1 where both its rows are
        of one side.
    """

    data: Any
    model: Any = None  # a SparseModel
    fused: Callable[..., float] | None = None
    sizes: Any = None  # int64
    blocks: Any = None  # a list of slices
    sides: int = 2


class Tensor(NamedTuple):
    """A model cut over the axis `tensor`: what one of its devices computes and holds.

    Inside shard_map the layers take the device's slices, and give the whole loss.
    """

    layers: Sequence[Layer]
    specs: Any  # a tree like params: how each leaf lies
    partial: Any  # a tree like params: whole leaves whose gradient is yet to be summed


class Problem(NamedTuple):
    """What is learned: a start value, and the gradient of a loss by minibatches.

    Strategies read minibatches in two calls. `take` may run in the background; what it
    returns is passed to `gradient` and `touched`.

    params: the start value; a pytree of arrays, or one table, an array of T rows.
    examples: the number of examples. A minibatch is an array of their indices.
    gradient: (params, batch) -> the mean loss over the batch and its gradient; a tree
        like params, or the Rows of a table that the batch touches, valid until the next
        call.
    evaluate: params -> measures by name.
    take: indices -> batch; by default the indices themselves.

    The rest is optional; `dml.strategies` lists which strategy needs what.

    touched: batch -> the rows that its gradient reads and changes, each once.
    frequency: how often all examples together touch each row; None: equally often.
    kernel: compiled descent, in place, over one example after another.
    products: inner products of rows, whose columns can be split over ranks.
    model: a JAX model whose loss `gradient` differentiates.
    table: () -> the same problem whose params are one table of rows.
    sums: whether gradients are those of the summed loss, not of the mean: parts of a
        minibatch are added without weights.
    """

    params: Params
    examples: int
    gradient: Any
    evaluate: Callable[[Params], Mapping[str, Any]]
    take: Callable[[np.ndarray], Any] = itself
    touched: Callable[[Any], np.ndarray | slice] | None = None
    frequency: np.ndarray | None = None
    kernel: Any = None
    products: Any = None
    model: "Model | None" = None
    table: "Callable[[], Problem] | None" = None
    sums: bool = False


class Shard(Protocol):
    """Rows of a table, and how gradients change them."""

    values: np.ndarray  # RxD float32; the server may put an equal copy here

    def update(
        self, at: np.ndarray | slice, grads: np.ndarray, share: float = 1.0
    ) -> None:
        """Step on those rows (each once); grads are of that share of a minibatch."""
        ...


class Step(NamedTuple):
    """What a strategy yields after one update, or after several.

    number: updates so far.
    loss: the mean over this step's examples, each before its update.
    params: () -> the parameters after the update. Collective; rank 0 gets the value,
        and where `replicas` is true every rank does. Valid until the next step.
    examples: in this step, over all ranks.
    seconds: by phase: input, gradient, wire, update, wait.
    words_sent: by this rank, in this step.
    measures: what else the strategy measured, by name.
    state: () -> the state of the update, to resume from; collective, as params.
    memory: () -> what this rank alone holds, such as its reducer's state.
    epoch: epochs so far, where a step is one.
    replicas: whether all ranks hold equal params.
    """

    number: int
    loss: float
    params: Callable[[], Params]
    examples: int
    seconds: Mapping[str, float]
    words_sent: int
    measures: Mapping[str, float] = {}
    state: Callable[[], Any] = nothing
    memory: Callable[[], Any] = nothing
    epoch: int | None = None
    replicas: bool = False


STATISTICS = "statistics"  # the name of params that are running means
ANY = -1  # as a source or a tag: whichever comes first
SHARED = 1  # Split_type's only kind: the ranks of a host


class Status:
    """Who sent what was received, or what waits: mpi4py's names."""

    def __init__(self) -> None:
        self.source = self.tag = -1
        self.count = 0  # bytes

    def Get_source(self) -> int:
        return self.source

    def Get_tag(self) -> int:
        return self.tag

    def Get_count(self) -> int:
        return self.count


class Round(NamedTuple):
    """One exchange of a schedule: message k goes from source[k] to dest[k].

    No rank sends twice or receives twice in a round; a rank that does both does both at
    once, and goes on when both are done.
    """

    source: np.ndarray
    dest: np.ndarray
    nbytes: np.ndarray  # of each message
    reduces: bool  # what is received is reduced, else kept
    segment: int = 0  # bytes that travel while those before them are reduced; 0: all
    times: int = 1  # that the round is repeated


class Span(NamedTuple):
    """What one rank did from start to end: a phase, or a call that waited."""

    rank: int
    name: str  # gradient, wire, update, wait; Recv, Sendrecv, Wait, ...
    start: float  # seconds since all ranks met
    end: float


class Flight(NamedTuple):
    """A message, from when its sender sent it to when its receiver had it."""

    source: int
    dest: int
    tag: int
    nbytes: int
    sent: float
    received: float


class Timeline(NamedTuple):
    """What all ranks did, on one clock."""

    spans: Sequence[Span]
    flights: Sequence[Flight]


class Request(Protocol):
    """A send or receive in progress."""

    def Wait(self, status: Any = None) -> bool: ...
    def Test(self, status: Any = None) -> bool: ...


class Window(Protocol):
    """Memory that every rank of one host reads and writes."""

    @property
    def parts(self) -> Sequence[np.ndarray]: ...  # bytes, one array a rank

    def barrier(self, pause: Callable[[], object]) -> None:
        """Barrier of all ranks; stores made before it are visible after it."""
        ...

    def Free(self) -> None: ...


class Comm(Protocol):
    """A communicator: MPI's operations under mpi4py's names, on numpy buffers.

    Real communicators come from `wire.comm.mpi.world()`, virtual ones from
    `sim.run`. What MPI does not have is in `platform` and `cache`.
    """

    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def platform(self) -> "Platform": ...
    @property
    def cache(self) -> "Cache": ...

    def Send(self, buf: Any, dest: int, tag: int = 0) -> None: ...
    def Recv(
        self, buf: Any, source: int = ANY, tag: int = ANY, status: Any = None
    ) -> None: ...
    def Sendrecv(
        self,
        sendbuf: Any,
        dest: int,
        sendtag: int = 0,
        recvbuf: Any = None,
        source: int = ANY,
        recvtag: int = ANY,
        status: Any = None,
    ) -> None: ...
    def Isend(self, buf: Any, dest: int, tag: int = 0) -> Request: ...
    def Irecv(self, buf: Any, source: int = ANY, tag: int = ANY) -> Request: ...
    def Probe(self, source: int = ANY, tag: int = ANY, status: Any = None) -> None: ...
    def Iprobe(self, source: int = ANY, tag: int = ANY, status: Any = None) -> bool: ...
    def Waitany(self, requests: Sequence[Any], status: Any = None) -> int:
        """Return the index of the first completed request, -1 if none is active."""
        ...

    def Waitall(self, requests: Sequence[Any]) -> None: ...
    def Barrier(self) -> None: ...
    def Allreduce(self, sendbuf: Any, recvbuf: Any, op: Op = np.add) -> None: ...
    def Split(self, color: int = 0, key: int = 0) -> "Comm": ...
    def Split_type(self, split_type: int = SHARED, key: int = 0) -> "Comm": ...
    def Dup(self) -> "Comm": ...
    def Free(self) -> None: ...
    def Wtime(self) -> float: ...
    def Reduce_local(self, inbuf: Any, inoutbuf: Any, op: Op, out: Any = None) -> None:
        """Set out, or inoutbuf, to op(inoutbuf, inbuf); γ a byte on virtual ranks."""
        ...


class CountedComm(Comm, Protocol):
    """A communicator that counts the bytes it sends: Metered(comm)."""

    @property
    def bytes_sent(self) -> int: ...


class Platform(NamedTuple):
    """What the ranks of a communicator run on: real processes or virtual ranks.

    A wrapper replaces the functions that it changes.

    Attributes:
      raw: The communicator below all wrappers; mpi4py's own on real ranks.
      hosts: Returns the host of every rank; hosts are numbered by their lowest rank.
        Collective at the first call.
      shared_window: Makes a window with so many bytes for every rank; collective. All
        ranks must be on one host.
      compute: compute(seconds, unless=None) advances a virtual clock or sleeps. It
        returns False if the request `unless` completed before the end.
      pause: Lets other ranks run; for loops that poll.
      network: The network of virtual ranks; None on real ranks.
      work: Takes the time of this share of an update's computation, where 1 is an even
        share. No time, except on a Delayed communicator.
      note: Adds a number that the program has read to a recorded run.
    """

    raw: Any
    hosts: Callable[[], Sequence[int]]
    shared_window: Callable[[int], Window]
    compute: Callable[..., bool]
    pause: Callable[[], object]
    network: Any = None
    work: Callable[[float], object] = nothing
    note: Callable[[int], object] = nothing

    @property
    def virtual(self) -> bool:
        return self.network is not None


class Region(NamedTuple):
    """Registered memory: one part a rank of the communicator, all on one host."""

    window: Window
    parts: Sequence[np.ndarray]  # bytes
    start: int  # address of this rank's part
    stop: int


Registered = tuple[Window, list[np.ndarray]]  # all ranks' views of registered memory


class Groups(NamedTuple):
    """The communicators of a hierarchical collective."""

    inside: Comm  # this rank's group
    across: Comm  # the ranks with this rank's place in every group
    owners: int  # ranks of the smallest group: the number of chunks


@dataclass
class Stage:
    """A small window through which plain buffers pass, slot after slot."""

    window: Window
    views: list[list[np.ndarray]]  # by slot: all ranks' buffers of its last use
    turn: int = 0  # the next slot


@dataclass
class Cache:
    """What collectives keep for one communicator between calls.

    Attributes:
      regions: Memory registered by `wire.comm.buffers.allocate`.
      parent: A communicator and the ranks in it that are this one's: its regions are
        known here, too.
      chunks: Of registered buffers, by id: the buffer, its window, this rank's chunks.
      copy: Registered memory for plain buffers.
      stage: The window for plain buffers.
      groups: Of hierarchical collectives, by width and the all-reduce across groups.
      chosen: The predicted fastest all-reduce by length, itemsize and whether the
        buffer is registered.
      rates: The fields of `wire.costs.allreduce.Rates`, measured on this machine.
      yielding: The wrapper for all-reduces in the background.
    """

    regions: list[Region] = field(default_factory=list)
    parent: tuple[Comm, Sequence[int]] | None = None
    chunks: dict[int, tuple[np.ndarray, Registered]] = field(default_factory=dict)
    copy: np.ndarray | None = None
    stage: Stage | None = None
    groups: dict[tuple[int, Any], Groups] = field(default_factory=dict)
    chosen: dict[tuple[int, int, bool], str] = field(default_factory=dict)
    rates: tuple[float, ...] | None = None
    yielding: Any = None


AllReduce = Callable[..., None]  # all_reduce(comm, buffer, op=np.add), in place


Combine = Callable[[Sequence[Rows]], Rows]  # terms in worker order -> their sum


class Reducer(NamedTuple):
    """How the gradients of all ranks become their mean.

    The mean is a sum of one term per worker: its gradient times its share of the
    examples. Without servers all ranks add their terms together, by `reduce`. A server
    receives the terms of an update as messages and adds them alone, by `combine`. Both
    functions of a reducer compute the same, so a robust estimate of the sum, such as R
    times the median of R terms, is one reducer for `synchronous` and for `server`.

    init: layout of the gradient -> the state of this rank; None where there is none.
    reduce: (comm, buffer, state) -> the next state. The buffer holds this rank's term
        and receives the mean. Behind the gradient stand scalars, such as the loss, that
        every reducer sums exactly.
    combine: the terms of an update -> the rows of their sum, or of an estimate of it.
        It has no state. A term has the rows that its worker touched, each once; the
        other rows of a term are zero. None where the sum needs all ranks: `server`
        refuses the reducer.
    """

    init: Callable[[Any], Any]
    reduce: Callable[[Comm, np.ndarray, Any], Any]
    combine: Combine | None = None
