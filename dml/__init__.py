"""The classic methods of distributed training, to read, run, measure and compare.

minibatch → loss and gradient → pack → wire → unpack → update → Step → metrics
   data/          models/               wire/            update/      runs/, figures/
                        strategies/ compose them, train.py drives

All communication is in wire/. The same function runs over real MPI
processes and over thousands of virtual ranks (sim/).
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING
from typing import Any as _Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from dml import sim as sim
    from dml import strategies as strategies
    from dml.data.minibatches import minibatches as minibatches
    from dml.metrics.timer import Timer as Timer
    from dml.models.model_problem import model_problem as model_problem
    from dml.strategies import strategy as strategy
    from dml.types import BadInput as BadInput
    from dml.types import Batch as Batch
    from dml.types import Comm as Comm
    from dml.types import Environment as Environment
    from dml.types import Model as Model
    from dml.types import Outcome as Outcome
    from dml.types import Problem as Problem
    from dml.types import Reducer as Reducer
    from dml.types import Rows as Rows
    from dml.types import Step as Step
    from dml.wire import reducers as reducers
    from dml.wire.collectives import ALLREDUCE as ALLREDUCE
    from dml.wire.collectives import allreduce as allreduce
    from dml.wire.comm import Metered as Metered
    from dml.wire.comm.buffers import flat as flat
    from dml.wire.comm.mpi import world as world
    from dml.wire.comm.plain import as_comm as as_comm
    from dml.wire.comm.watch import watch as watch
    from dml.wire.mesh.devices import start as start
    from dml.wire.mesh.exact import exact_mean as exact_mean
    from dml.wire.mesh.exact import exact_psum as exact_psum
    from dml.wire.reducers.codecs import Codec as Codec
    from dml.wire.reducers.fixed_point import exact_sum as exact_sum
    from dml.wire.server.consistency import Consistency as Consistency

# Public names by module, which is imported at the first use of a name.
_NAMES = {
    "dml.data.minibatches": ("minibatches",),
    "dml.metrics.timer": ("Timer",),
    "dml.models.model_problem": ("model_problem",),
    "dml.strategies": ("strategy",),
    "dml.types": (
        *("BadInput", "Batch", "Comm", "Environment", "Model", "Outcome", "Problem"),
        *("Reducer", "Rows", "Step"),
    ),
    "dml.wire.collectives": ("ALLREDUCE", "allreduce"),
    "dml.wire.comm": ("Metered",),
    "dml.wire.comm.buffers": ("flat",),
    "dml.wire.comm.mpi": ("world",),
    "dml.wire.comm.plain": ("as_comm",),
    "dml.wire.comm.watch": ("watch",),
    "dml.wire.mesh.devices": ("start",),
    "dml.wire.mesh.exact": ("exact_mean", "exact_psum"),
    "dml.wire.reducers.codecs": ("Codec",),
    "dml.wire.reducers.fixed_point": ("exact_sum",),
    "dml.wire.server.consistency": ("Consistency",),
}
_MODULES = {
    "reducers": "dml.wire.reducers",
    "sim": "dml.sim",
    "strategies": "dml.strategies",
}


__all__ = [*_MODULES, *(name for names in _NAMES.values() for name in names)]


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return _load(_MODULES[name])
    for module, names in _NAMES.items():
        if name in names:
            return getattr(_load(module), name)
    raise AttributeError(f"module 'dml' has no attribute {name!r}")


def _load(module: str) -> _Any:
    """Import a module of dml; the error of a missing package names its extra."""
    return _import_module("dml.extras").load(module)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
