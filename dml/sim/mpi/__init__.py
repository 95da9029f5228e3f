"""`dml.sim.MPI`: the names of mpi4py's module `MPI`, on virtual ranks.

One module serves all ranks: COMM_WORLD and COMM_SELF are those of the rank that runs.
Chapter: docs/virtual.md.
"""

from typing import Any

from dml.sim.mpi import basic_types, environment, errors
from dml.sim.mpi import intercomm as intercomm
from dml.sim.mpi.communicators import own_comm
from dml.sim.mpi.constants import CONSTANTS
from dml.sim.mpi.constants import Exception as Exception
from dml.sim.mpi.errors import Errhandler as Errhandler
from dml.sim.mpi.groups import Group as Group
from dml.sim.mpi.handles import NAMED
from dml.sim.mpi.info import Info as Info
from dml.sim.mpi.intercomm import File as File
from dml.sim.mpi.intercomm import Intercomm as Intercomm
from dml.sim.mpi.intercomm import Session as Session
from dml.sim.mpi.intracomm import Comm as Comm
from dml.sim.mpi.intracomm import Intracomm as Intracomm
from dml.sim.mpi.matched import Message as Message
from dml.sim.mpi.memory import BOTTOM as BOTTOM
from dml.sim.mpi.memory import BUFFER_AUTOMATIC as BUFFER_AUTOMATIC
from dml.sim.mpi.memory import IN_PLACE as IN_PLACE
from dml.sim.mpi.memory import BottomType as BottomType
from dml.sim.mpi.memory import BufferAutomaticType as BufferAutomaticType
from dml.sim.mpi.memory import InPlaceType as InPlaceType
from dml.sim.mpi.memory import buffer as buffer
from dml.sim.mpi.operations import Op as Op
from dml.sim.mpi.packing import Datatype as Datatype
from dml.sim.mpi.pickles import Pickle as Pickle
from dml.sim.mpi.pickles import pickle as pickle
from dml.sim.mpi.private import PRIVATE
from dml.sim.mpi.requests import Grequest as Grequest
from dml.sim.mpi.requests import Prequest as Prequest
from dml.sim.mpi.requests import Request as Request
from dml.sim.mpi.running import run as run
from dml.sim.mpi.status import Status as Status
from dml.sim.mpi.topocomm import UNWEIGHTED as UNWEIGHTED
from dml.sim.mpi.topocomm import WEIGHTS_EMPTY as WEIGHTS_EMPTY
from dml.sim.mpi.topocomm import Cartcomm as Cartcomm
from dml.sim.mpi.topocomm import Distgraphcomm as Distgraphcomm
from dml.sim.mpi.topocomm import Graphcomm as Graphcomm
from dml.sim.mpi.topocomm import Topocomm as Topocomm
from dml.sim.mpi.topologies import compute_dims
from dml.sim.mpi.windows import Win as Win

memory = buffer
FUNCTIONS = {
    name: value
    for module in (environment, errors)
    for name, value in vars(module).items()
    if name[0].isupper() and callable(value) and not isinstance(value, type)
}
FUNCTIONS |= {"get_vendor": environment.get_vendor, "Compute_dims": compute_dims}
# by name: mpi4py has more than 300 of them
globals().update(
    CONSTANTS | basic_types.BY_NAME | NAMED | FUNCTIONS | environment.LACKING | PRIVATE
)


def __getattr__(name: str) -> Any:
    if name in ("COMM_WORLD", "COMM_SELF"):
        return own_comm(name)
    raise AttributeError(
        f"expected a name of mpi4py.MPI, got {name!r}; docs/virtual.md lists what is "
        "left out"
    )
