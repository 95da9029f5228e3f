"""Requests: messages and collective calls in progress, also persistent ones."""

from collections.abc import Callable, Sequence
from typing import Any, Self

from dml.sim.mpi.constants import Exception, error, left_out
from dml.sim.mpi.handles import Handle, name_handle
from dml.sim.mpi.status import Status
from dml.types import TOO_LONG, UNDEFINED, WITHDRAWN, RankFailed
from dml.types import Status as PlainStatus


class Pending:
    """The object of a request.

    Attributes:
      virtual: Request of the virtual communicator; None if it is complete.
      start: Starts a persistent request again, and returns its virtual request.
      receives: Whether it is a receive, which has a source and a tag.
      trace: A `Trace`, or None.
      value: Returns the received object for `wait`, in lower case; None: no object.
      also: A send that must be complete, too, of Isendrecv.
    """

    def __init__(
        self,
        virtual: Any,
        call: str = "",
        *,
        start: Callable[[], Any] | None = None,
        receives: bool = True,
        trace: Any = None,
    ):
        self.virtual, self.call, self.start = virtual, call, start
        self.active = start is None
        self.receives, self.trace = receives, trace
        self.value: Callable[[], Any] | None = None
        self.also: Any = None
        self.status = Status()
        self.error: Any = None

    def finish(self, plain: PlainStatus | None) -> None:
        """Keep the status of the virtual request, which is complete."""
        virtual, self.virtual = self.virtual, None
        status = self.status
        status.fill()
        failed = getattr(virtual, "error", None)
        if plain is None or not self.receives:
            self.error = failed
            status.Set_cancelled(plain is not None and plain.count == WITHDRAWN)
            return
        status.fill(plain.source, plain.tag, max(plain.count, 0))
        if self.trace is not None:
            self.trace.received(virtual.comm, plain.source, plain.tag)
        if plain.count == WITHDRAWN:
            status.fill()
            status.Set_cancelled(True)
        elif plain.count == TOO_LONG:
            self.error = failed
            if not isinstance(failed, Exception):
                text = f"{self.call}: {failed}"
                self.error = error("ERR_TRUNCATE", text)
            status.Set_error(self.error.Get_error_class())

    def wait(self) -> None:
        if self.virtual is not None:
            plain, virtual = PlainStatus(), self.virtual
            start = virtual.process.clock
            try:
                virtual.Wait(plain)
                if self.also is not None:
                    self.also.Wait()
            except RankFailed as failure:
                self.virtual = None
                raise rank_failed(self.call, failure) from failure
            self.finish(plain)
            if self.trace is not None:
                self.trace.interval(virtual.process, self.call, start)

    def test(self) -> bool:
        if self.virtual is None:
            return True
        plain = PlainStatus()
        try:
            if not self.virtual.Test(plain):
                return False
            if self.also is not None and not self.also.Test():
                return False
        except RankFailed as failure:
            self.virtual = None
            raise rank_failed(self.call, failure) from failure
        self.finish(plain)
        return True

    def result(self) -> Any:
        return self.value() if self.value is not None else None

    @property
    def done(self) -> bool:
        """Whether it is complete, without a poll."""
        virtual = self.virtual
        return virtual is None or (
            0 <= virtual.done <= virtual.process.clock or virtual.count == WITHDRAWN
        )


def rank_failed(call: str, failure: RankFailed) -> Exception:
    kind = "ERR_REVOKED" if "revoked" in str(failure) else "ERR_PROC_FAILED"
    return error(kind, f"{call}: {failure}")


class Request(Handle):
    """A request of mpi4py."""

    null_error = "ERR_REQUEST"
    held: Any

    @property
    def idle(self) -> bool:
        """Whether it is null, or persistent and not started."""
        return self.held is None or not self.held.active

    def complete(self, status: Status | None) -> Any:
        """Release a complete request; return its object."""
        pending = self.held
        if status is not None:
            status.__init__(pending.status)  # type: ignore[misc]
        if pending.start is None:
            self.held = None
        else:
            pending.active = False
        if pending.error is not None:
            failed, pending.error = pending.error, None
            raise failed
        return pending.result()

    def wait(self, status: Status | None = None) -> Any:
        """Wait; return the received object, or None."""
        if self.idle:
            if status is not None:
                status.fill()
            return None
        self.held.wait()
        return self.complete(status)

    def Wait(self, status: Status | None = None) -> bool:
        if self.idle:
            if status is not None:
                status.fill()
            return True
        self.held.wait()
        self.held.value = None
        self.complete(status)
        return True

    def test(self, status: Status | None = None) -> tuple[bool, Any]:
        """Return whether the request is complete, and its object."""
        if self.idle:
            if status is not None:
                status.fill()
            return True, None
        if not self.held.test():
            return False, None
        return True, self.complete(status)

    def Test(self, status: Status | None = None) -> bool:
        return self.test(status)[0]

    def Get_status(self, status: Status | None = None) -> bool:
        """Return whether the request is complete, and keep it."""
        done = self.idle or self.held.test()
        if done and status is not None:
            status.__init__(None if self.idle else self.held.status)  # type: ignore[misc]
        return done

    get_status = Get_status

    def Cancel(self) -> None:
        """Withdraw a receive without a message; other requests are not changed."""
        pending = self.need("Request.Cancel")
        virtual = pending.virtual
        if virtual is None or not pending.receives:
            return
        if virtual.comm.withdraw(virtual):
            virtual.process.open_receives -= 1
            virtual.count, virtual.active = WITHDRAWN, False
            virtual.done = virtual.process.clock

    cancel = Cancel

    def Free(self) -> None:
        self.need("Request.Free")
        self.held = None

    # Several requests.

    @classmethod
    def Waitall(cls, requests: Any, statuses: Any = None) -> bool:
        cls.waitall(requests, statuses)
        return True

    @classmethod
    def waitall(cls, requests: Sequence["Request"], statuses: Any = None) -> list[Any]:
        found, failed = [], None
        kept = filled(statuses, len(requests))
        for request, status in zip(requests, kept, strict=True):
            try:
                found.append(request.wait(status))
            except Exception as reason:
                failed = failed or reason
                if status is not None:
                    status.Set_error(reason.Get_error_class())
        if failed is not None:
            if len(requests) > 1:
                failed.text = f"in Waitall: {failed.text}"
            raise failed
        return found

    @classmethod
    def testall(
        cls, requests: Sequence["Request"], statuses: Any = None
    ) -> tuple[bool, Any]:
        """Return whether all are complete, and their objects."""
        if not all_done(requests):
            return False, None
        return True, cls.waitall(requests, statuses)

    @classmethod
    def Testall(cls, requests: Any, statuses: Any = None) -> bool:
        return cls.testall(requests, statuses)[0]

    @classmethod
    def waitany(
        cls, requests: Sequence["Request"], status: Status | None = None
    ) -> tuple[int, Any]:
        """Wait for the first completion; return its index and its object."""
        index = first_done(requests, wait=True)
        if index == UNDEFINED:
            if status is not None:
                status.fill()
            return index, None
        return index, requests[index].wait(status)

    @classmethod
    def Waitany(cls, requests: Any, status: Status | None = None) -> int:
        return cls.waitany(requests, status)[0]

    @classmethod
    def testany(
        cls, requests: Sequence["Request"], status: Status | None = None
    ) -> tuple[int, bool, Any]:
        """Return the index of a complete one, whether there is one, and its object."""
        index = first_done(requests, wait=False)
        if index == UNDEFINED:
            flag = all(request.idle for request in requests)
            if flag and status is not None:
                status.fill()
            return index, flag, None
        return index, True, requests[index].wait(status)

    @classmethod
    def Testany(cls, requests: Any, status: Status | None = None) -> tuple[int, bool]:
        return cls.testany(requests, status)[:2]

    @classmethod
    def waitsome(cls, requests: Any, statuses: Any = None) -> tuple[Any, Any]:
        """Wait for at least one; return the indices and the objects of all complete."""
        if first_done(requests, wait=True) == UNDEFINED:
            return None, None
        return cls.some(requests, statuses)

    @classmethod
    def testsome(cls, requests: Any, statuses: Any = None) -> tuple[Any, Any]:
        if all(request.idle for request in requests):
            return None, None
        first_done(requests, wait=False)
        return cls.some(requests, statuses)

    @classmethod
    def some(cls, requests: Any, statuses: Any) -> tuple[list[int], list[Any]]:
        indices = done(requests)
        kept = filled(statuses, len(indices))
        return indices, [
            requests[k].wait(status) for k, status in zip(indices, kept, strict=True)
        ]

    @classmethod
    def Waitsome(cls, requests: Any, statuses: Any = None) -> Any:
        return cls.waitsome(requests, statuses)[0]

    @classmethod
    def Testsome(cls, requests: Any, statuses: Any = None) -> Any:
        return cls.testsome(requests, statuses)[0]

    @classmethod
    def Get_status_all(cls, requests: Any, statuses: Any = None) -> bool:
        done = all_done(requests)
        if done:
            for request, status in zip(
                requests, filled(statuses, len(requests)), strict=True
            ):
                request.Get_status(status)
        return done

    @classmethod
    def Get_status_any(cls, requests: Any, status: Any = None) -> tuple[int, bool]:
        index = first_done(requests, wait=False)
        if index == UNDEFINED:
            flag = all(request.idle for request in requests)
            if flag and status is not None:
                status.fill()
            return index, flag
        return index, requests[index].Get_status(status)

    @classmethod
    def Get_status_some(cls, requests: Any, statuses: Any = None) -> Any:
        if all(request.idle for request in requests):
            return None
        first_done(requests, wait=False)
        indices = done(requests)
        for k, status in zip(indices, filled(statuses, len(indices)), strict=True):
            requests[k].Get_status(status)
        return indices

    get_status_all = Get_status_all
    get_status_any = Get_status_any
    get_status_some = Get_status_some


Request.root = Request


def filled(statuses: Any, length: int) -> list[Any]:
    """Return one status, or None, for each request; extend a list of statuses."""
    if statuses is None:
        return [None] * length
    if isinstance(statuses, list):
        statuses += [Status() for _ in range(length - len(statuses))]
    kept = [*statuses[:length]]
    return kept + [None] * (length - len(kept))


def done(requests: Sequence[Request]) -> list[int]:
    """Return the indices of the requests that are complete, without a poll."""
    return [k for k, one in enumerate(requests) if not one.idle and one.held.done]


def all_done(requests: Sequence[Request]) -> bool:
    """Return whether all are complete; poll once if one is not."""
    for request in requests:
        if not request.idle and not request.held.done and not request.held.test():
            return False
    return True


def first_done(requests: Sequence[Request], wait: bool) -> int:
    """Return the index of the request that is complete first; UNDEFINED for none."""
    busy = [k for k, request in enumerate(requests) if not request.idle]
    for k in busy:
        if requests[k].held.done:
            return k
    if not busy:
        return UNDEFINED
    if not wait:
        return next((k for k in busy if requests[k].held.test()), UNDEFINED)
    pending = [requests[k].held for k in busy]
    virtual = [one.virtual for one in pending]
    plain = PlainStatus()
    try:
        index = virtual[0].comm.Waitany(virtual, plain)
    except RankFailed as failure:
        raise rank_failed("Waitany", failure) from failure
    pending[index].finish(plain)
    return busy[index]


class Prequest(Request):
    """A persistent request."""

    def Start(self) -> None:
        pending = self.need("Prequest.Start")
        if pending.active:
            raise error("ERR_REQUEST", "Prequest.Start: expected a request that ended")
        pending.active = True
        pending.virtual = pending.start()

    @classmethod
    def Startall(cls, requests: Sequence[Self]) -> None:
        for request in requests:
            request.Start()


class Grequest(Request):
    """A generalized request, which the program completes."""

    def __new__(cls, other: Any = None) -> Self:
        if other is not None and not isinstance(other, Grequest):
            raise TypeError(f"expected a Grequest, got a {type(other).__name__}")
        return super().__new__(cls, other)

    @classmethod
    def Start(cls, *functions: Any, **options: Any) -> Self:
        raise left_out("Grequest.Start")


name_handle("REQUEST_NULL", Request.of(None))
