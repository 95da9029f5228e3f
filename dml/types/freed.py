"""Classes of freed communicators, whose operations raise BadInput."""

from functools import cache
from typing import Any

from dml.types.defaults import BadInput

OPERATIONS = (
    *("Send", "Recv", "Sendrecv", "Isend", "Irecv", "Probe", "Iprobe"),
    *("Barrier", "Allreduce", "Split", "Split_type", "Dup", "Free", "shared_window"),
)


@cache
def freed(kind: type) -> type:
    """Return a subclass of a communicator's class whose operations raise BadInput.

    `Free` changes the class of a communicator to it, so that operations before `Free`
    need no test. Requests that were started before can still be completed.
    """

    def refuse(name: str) -> Any:
        def operation(comm: Any, *arguments: Any, **options: Any) -> None:
            raise BadInput(
                f"rank {comm.rank}: expected a communicator in use, got one that was "
                f"freed, in {name}; call Free after the last operation"
            )

        return operation

    operations = {name: refuse(name) for name in OPERATIONS}
    return type(f"Freed{kind.__name__}", (kind,), {"__slots__": (), **operations})
