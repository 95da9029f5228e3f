"""The object of a communicator, and its calls without messages."""

from typing import Any, ClassVar

from dml.sim.mpi.algorithms import COLLECTIVES
from dml.sim.mpi.attributes import Attributed
from dml.sim.mpi.channel import Call, Channel, ObjectChannel, run_body
from dml.sim.mpi.constants import CONSTANTS, error
from dml.sim.mpi.errors import Errhandled
from dml.sim.mpi.groups import Group
from dml.sim.mpi.handles import Handle
from dml.sim.mpi.info import Info
from dml.sim.mpi.ranks import Rank, current
from dml.types import PROC_NULL
from dml.types.messages import TAG_UB


class CommObject:
    """The object of a communicator on one rank.

    Attributes:
      comm: The virtual communicator of the program's messages.
      started: Number of non-blocking collective calls started.
      duplicate, tags: Communicator and number of the last call of `pkl5`.
      topology: A `Topology`, or None.
    """

    def __init__(self, comm: Any, owner: Rank, name: str = ""):
        self.comm, self.owner, self.name = comm, owner, name
        self.rank, self.size = comm.rank, comm.size
        self.channel: Any = None
        self.started = self.tags = 0
        self.topology: Any = None
        self.duplicate: Any = None
        self.attributes: dict[int, Any] = {}
        self.info: dict[str, str] = {}
        self.errhandler: Any = None
        self.attached: Any = None  # size of the buffer of Bsend
        self.predefined = bool(name)
        self.type: Any = None  # class of its handles

    def private(self) -> Any:
        """Return the virtual communicator of the messages of collective calls."""
        if self.channel is None:
            results = self.comm.shared.results
            if "mpi" not in results:
                processes = [peer.process for peer in self.comm.peers]
                results["mpi"] = type(self.comm).group(processes)
            self.channel = results["mpi"][self.rank]
        return self.channel

    def collective(self, tag: Call, body: Any, objects: bool = False) -> Any:
        """Return body(channel) of a blocking collective call."""
        owner = self.owner
        trace = owner.options.trace
        kind = ObjectChannel if objects else Channel
        table = COLLECTIVES[owner.options.collectives]
        channel = kind(self.private(), tag, owner, table)
        if trace is None:
            return run_body(channel, body)
        start = self.comm.process.clock
        result = run_body(channel, body)
        trace.interval(self.comm.process, tag.name, start)
        return result

    def peer(self, call: str, what: str, rank: Any, wild: bool = False) -> int:
        """Return a rank, PROC_NULL or, if `wild`, ANY_SOURCE."""
        if 0 <= rank < self.size or rank == PROC_NULL:
            return int(rank)
        if wild and rank == CONSTANTS["ANY_SOURCE"]:
            return rank
        raise error(
            "ERR_RANK",
            f"{call}: expected a {what} from 0 to {self.size - 1} or PROC_NULL, got "
            f"{rank}",
        )

    def tag(self, call: str, tag: Any, wild: bool = False) -> int:
        if 0 <= tag <= TAG_UB or wild and tag == CONSTANTS["ANY_TAG"]:
            return int(tag)
        raise error("ERR_TAG", f"{call}: expected a tag from 0 to {TAG_UB}, got {tag}")

    def root(self, call: str, root: Any) -> int:
        if 0 <= root < self.size:
            return int(root)
        raise error(
            "ERR_ROOT",
            f"{call}: expected a root from 0 to {self.size - 1}, got {root}",
        )


class BaseComm(Errhandled, Attributed, Handle):
    """Calls of a communicator that send no messages."""

    null_error = "ERR_COMM"
    kind = "Comm"
    ERRHANDLER: ClassVar[str] = "Comm"
    intracomm: ClassVar[Any] = None  # the class of COMM_WORLD
    held: CommObject

    def Get_rank(self) -> int:
        return self.need("Comm.Get_rank").rank

    def Get_size(self) -> int:
        return self.need("Comm.Get_size").size

    rank = property(Get_rank)
    size = property(Get_size)

    def Get_group(self) -> Group:
        held = self.need("Comm.Get_group")
        return Group.of_processes([peer.process.rank for peer in held.comm.peers])

    group = property(Get_group)

    def Is_inter(self) -> bool:
        self.need("Comm.Is_inter")
        return False

    def Is_intra(self) -> bool:
        self.need("Comm.Is_intra")
        return True

    is_inter = property(Is_inter)
    is_intra = property(Is_intra)

    def Get_topology(self) -> int:
        topology = self.need("Comm.Get_topology").topology
        return CONSTANTS["UNDEFINED"] if topology is None else topology.kind

    topology = property(Get_topology)

    @property
    def is_topo(self) -> bool:
        return self.held is not None and self.held.topology is not None

    def Get_name(self) -> str:
        return "MPI_COMM_NULL" if self.held is None else self.held.name

    def Set_name(self, name: str) -> None:
        self.need("Comm.Set_name").name = name

    name = property(Get_name, Set_name)

    def Get_info(self) -> Info:
        return Info.Create(self.need("Comm.Get_info").info)

    def Set_info(self, info: Info) -> None:
        self.need("Comm.Set_info").info.update(info.items())

    info = property(Get_info, Set_info)

    def Compare(self, other: "BaseComm") -> int:
        """Return IDENT, CONGRUENT, SIMILAR or UNEQUAL."""
        mine, theirs = self.need("Comm.Compare"), other.need("Comm.Compare")
        if mine is theirs:
            return CONSTANTS["IDENT"]
        found = Group.Compare(self.Get_group(), other.Get_group())
        ident = found == CONSTANTS["IDENT"]
        return CONSTANTS["CONGRUENT"] if ident else found

    def Abort(self, errorcode: int = 0) -> None:
        """End the run; the runner exits with this code."""
        self.need("Comm.Abort").owner.abort(errorcode)

    def Get_attr(self, keyval: int) -> Any:
        if keyval == CONSTANTS["UNIVERSE_SIZE"]:
            return current().comm.size
        return super().Get_attr(keyval)

    def Free(self) -> None:
        """Free the communicator; collective."""
        held = self.need("Comm.Free")
        if held.predefined:
            raise error("ERR_COMM", "Comm.Free: expected one that the program made")
        self.delete_attributes()
        self.held = None  # type: ignore[assignment]

    Disconnect = Free

    def __reduce__(self) -> Any:
        held = self.held
        if held is not None and held.predefined:
            name = "COMM_WORLD" if "WORLD" in held.name else "COMM_SELF"
            own = own_comm(name)
            return (own_comm, (name,)) if own is self else (type(self), (own,))
        return super().__reduce__()


def own_comm(name: str) -> Any:
    """Return COMM_WORLD or COMM_SELF of the rank that runs."""
    rank = current()
    kind = BaseComm.intracomm
    if name == "COMM_WORLD":
        if rank.world is None:
            rank.world = kind.of(CommObject(rank.comm, rank, "MPI_COMM_WORLD"))
        return rank.world
    if rank.self is None:
        (alone,) = type(rank.comm).group([rank.process])
        rank.self = kind.of(CommObject(alone, rank, "MPI_COMM_SELF"))
    return rank.self
