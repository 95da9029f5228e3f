"""Pickles of messages in lower case: mpi4py's `MPI.pickle`."""

import pickle as standard
import sys
from collections.abc import Callable
from typing import Any

from dml.sim.mpi.memory import buffer
from dml.sim.mpi.ranks import CURRENT


class Pickle:
    """A pair of functions that make pickles and load them."""

    PROTOCOL: int | None = standard.HIGHEST_PROTOCOL

    def __init__(
        self,
        dumps: Callable[..., bytes] | None = None,
        loads: Callable[..., Any] | None = None,
        protocol: int | None = None,
        threshold: int | None = None,
    ):
        own = dumps is None and loads is None
        self.dump = dumps or standard.dumps
        self.load = loads or standard.loads
        self.PROTOCOL = protocol if not own or protocol is not None else self.PROTOCOL
        self.THRESHOLD = threshold

    @property
    def THRESHOLD(self) -> int:
        """Bytes from which `dumps_oob` keeps a buffer apart; None: 256 KB."""
        return self.threshold

    @THRESHOLD.setter
    def THRESHOLD(self, nbytes: int | None) -> None:
        self.threshold = 1 << 18 if nbytes is None else nbytes

    def dumps(self, obj: Any) -> bytes:
        with OwnModules():
            if self.PROTOCOL is None:
                return self.dump(obj)
            return self.dump(obj, self.PROTOCOL)

    def loads(self, data: Any) -> Any:
        with OwnModules():
            return self.load(data)

    def dumps_oob(self, obj: Any) -> tuple[bytes, list[Any]]:
        """Return a pickle, and the large buffers separately."""
        buffers: list[Any] = []

        def keep(found: standard.PickleBuffer) -> bool:
            memory = found.raw()
            if memory.nbytes < self.THRESHOLD:
                return True
            buffers.append(buffer.frombuffer(memory))
            return False

        with OwnModules():
            data = self.dump(obj, 5, buffer_callback=keep)
        return data, buffers

    def loads_oob(self, data: Any, buffers: Any) -> Any:
        with OwnModules():
            return self.load(data, buffers=buffers)


class OwnModules:
    """A context in which pickles find the modules of this rank's script."""

    def __enter__(self) -> None:
        rank = CURRENT.get(None)
        self.own = rank.modules if rank is not None else {}
        self.before = {name: sys.modules.get(name) for name in self.own}
        sys.modules.update(self.own)

    def __exit__(self, *reason: Any) -> None:
        for name, module in self.before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module


pickle = Pickle()
