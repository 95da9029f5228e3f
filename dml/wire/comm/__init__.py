"""Communicators: MPI's own in `mpi`, and wrappers that count, trace, record or delay.

`mpi` needs mpi4py and is not imported here, since virtual ranks do not need it.
"""

import os

from dml.wire.comm.delayed import Delayed as Delayed
from dml.wire.comm.event_log import Log as Log
from dml.wire.comm.metered import Metered as Metered
from dml.wire.comm.rank_order import first_of_all as first_of_all
from dml.wire.comm.rank_order import first_of_each_host as first_of_each_host
from dml.wire.comm.recorded import Recorded as Recorded
from dml.wire.comm.recorded import Replayed as Replayed
from dml.wire.comm.throttled import Throttled as Throttled
from dml.wire.comm.traced import Traced as Traced

FAULT_TOLERANT = "OMPI_MCA_mpi_ft_enable"  # variable of mpirun --with-ft ulfm

if os.environ.get(FAULT_TOLERANT) == "1":
    # MPI's finalization may wait forever for dead ranks. mpi4py leaves it out; an
    # agreement of the living ranks takes its place, see mpi.initialized_world
    os.environ["MPI4PY_RC_FINALIZE"] = "0"
