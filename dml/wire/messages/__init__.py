"""The medium of messages: collectives by hand over point-to-point calls.

`comm`, which needs MPI, is not imported here: virtual ranks do without.
"""

from collections.abc import Callable

from dml.wire.messages.all_to_all import all_to_all as all_to_all
from dml.wire.messages.auto import CANDIDATES, auto_allreduce
from dml.wire.messages.auto import chosen as chosen
from dml.wire.messages.auto import predicted as predicted
from dml.wire.messages.auto import rates as rates
from dml.wire.messages.broadcast import broadcast as broadcast
from dml.wire.messages.check import checked as checked
from dml.wire.messages.delayed import Delayed as Delayed
from dml.wire.messages.first import first_of_all as first_of_all
from dml.wire.messages.first import first_of_each_host as first_of_each_host
from dml.wire.messages.log import Log as Log
from dml.wire.messages.metered import Metered as Metered
from dml.wire.messages.native import native_allreduce
from dml.wire.messages.progress import allreduce_async as allreduce_async
from dml.wire.messages.recorded import Recorded as Recorded
from dml.wire.messages.recorded import Replayed as Replayed
from dml.wire.messages.reduce_scatter import all_gather as all_gather
from dml.wire.messages.reduce_scatter import reduce_scatter as reduce_scatter
from dml.wire.messages.star import star_allreduce
from dml.wire.messages.traced import Traced as Traced
from dml.wire.messages.tree import tree_allreduce as tree_allreduce

ALLREDUCE: dict[str, Callable[..., None]] = {
    "star": star_allreduce,
    "tree": tree_allreduce,
    **CANDIDATES,
    "native": native_allreduce,
    "auto": auto_allreduce,
}
