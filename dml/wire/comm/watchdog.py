"""The watchdog: a thread per rank that reports who waits for whom, and ends deadlocks.

    rank 0: Recv(source=1) <-> rank 1: Recv(source=0)        a cycle: the run is ended
    rank 0: computing <- rank 1: Recv(source=0) <- rank 2: Recv(source=1)     reported

Each rank sends its state to rank 0 four times per timeout, from a thread that also
looks at the main thread. A slow rank never ends a run. Rank 0 ends it only if some
ranks wait for each other or for a rank that has ended. Because reports may be old, rank
0 first asks these ranks again; all of them must still be in the same calls.
"""

import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dml.types import ANY

FOLDER = str(Path(__file__).parent)  # of the communicators
WIRE = str(Path(__file__).parents[1])
WINDOW = str(Path(WIRE, "memory", "window.py"))  # the barrier in shared memory
STANDARD = str(Path(threading.__file__).parent)  # the standard library
SLOWEST = 1e7  # bytes per second: a longer buffer may take longer than the timeout


class Call(NamedTuple):
    """A blocking call that lasts longer than the timeout."""

    text: str
    peers: tuple[int, ...]  # ranks of the world
    any_peer: bool = False  # one peer is enough to return
    collective: tuple = ()  # the same on all ranks that have made this collective call
    begun: float = 0.0  # by the clock of the rank


class State(NamedTuple):
    """The state of a rank; without calls it computes, or `ended` is true."""

    calls: tuple[Call, ...] = ()
    place: str = ""  # function and line of the main thread
    ended: bool = False
    waited: float = 0.0  # seconds in the longest of the calls
    answered: int = 0  # number of rank 0's last question


def deadlocked_ranks(states: Mapping[int, State]) -> list[int]:
    """Return the ranks that wait for each other or for a rank that has ended.

    This is the largest set of waiting ranks in which every call needs a rank of the set
    or a rank that has ended.
    """
    ended = {rank for rank, state in states.items() if state.ended}
    waiting = {rank for rank, state in states.items() if state.calls}
    while True:
        silent = waiting | ended
        left = {
            rank
            for rank in waiting
            if all(is_blocked(call, silent, states) for call in states[rank].calls)
        }
        if left == waiting:
            return sorted(waiting)
        waiting = left


def is_blocked(call: Call, silent: set[int], states: Mapping[int, State]) -> bool:
    """Return whether the call needs a rank of the silent ranks."""
    missing = [
        peer
        for peer in call.peers
        if peer in silent and not has_entered(call, states.get(peer))
    ]
    return len(missing) == len(call.peers) if call.any_peer else bool(missing)


def has_entered(call: Call, state: State | None) -> bool:
    """Return whether a rank in this state has made the same collective call."""
    calls = state.calls if state else ()
    return bool(call.collective) and call.collective in [
        one.collective for one in calls
    ]


class Watchdog:
    """Looks at the `call` of every communicator of this process.

    Args:
      comm: A communicator of all ranks for the reports, with mpi4py's `isend`, `iprobe`
        and `recv`; no other messages are sent on it.
      stop: Called on rank 0 to end all ranks.
    """

    def __init__(self, comm: Any, stop: Callable[[], Any]):
        self.comm, self.stop = comm, stop
        self.seconds = 0.0
        self.watched: list[weakref.ref] = []  # communicators
        self.seen: dict[int, tuple[Any, float]] = {}  # by communicator: call, since
        self.sent: list[Any] = []  # requests of reports
        self.question = 0  # number of the last one, of rank 0
        self.closing = threading.Event()
        self.thread: threading.Thread | None = None
        # On rank 0:
        self.states: dict[int, State] = {}
        self.heard: dict[int, float] = {}
        self.suspected: list[tuple] = []  # the stuck ranks and their calls
        self.printed = 0.0  # seconds of waiting at the last report

    def start(self, seconds: float) -> None:
        """Watch for calls longer than `seconds`; 0: none."""
        self.seconds = seconds
        if seconds > 0 and self.thread is None:
            self.thread = threading.Thread(target=self.run, daemon=True)
            self.thread.start()

    def add(self, comm: Any) -> None:
        self.watched.append(weakref.ref(comm))

    def run(self) -> None:
        due = 0.0
        while not self.closing.wait(min(1.0, self.seconds / 4 or 1.0)):
            if self.seconds <= 0:
                continue
            asked, now = self.receive_question(), time.monotonic()
            state = self.state(now)  # after the question
            if asked or now >= due:
                self.report(state)
                due = now + self.seconds / 4
            self.receive()

    def close(self) -> None:
        """End the thread and report that this rank ends; called before MPI ends."""
        if self.thread is None:
            return
        self.closing.set()
        self.thread.join()
        self.report(State(ended=True))
        while self.comm.rank == 0 and not self.all_have_ended():
            self.receive()
            time.sleep(1e-3)

    def all_have_ended(self) -> bool:
        states = self.states.values()
        return len(states) == self.comm.size and all(state.ended for state in states)

    def state(self, now: float) -> State:
        """Return the state of this rank."""
        calls = []
        waits = True  # no call is new
        for reference in list(self.watched):
            comm = reference()
            if comm is None:
                self.watched.remove(reference)
                continue
            call = comm.call
            before, since = self.seen.get(id(comm), (None, now))
            if call is None or call is not before:
                self.seen[id(comm)] = call, now
                waits = waits and call is None
                continue
            if now - since < self.seconds + length(call) / SLOWEST:
                waits = False
                continue
            calls.append(describe(comm, call, since))
        frame = sys._current_frames().get(threading.main_thread().ident or 0)
        if not calls or not waits or not in_blocking_call(frame):
            calls = []
        longest = max((now - call.begun for call in calls), default=0.0)
        return State(tuple(calls), place(frame), False, longest)

    def report(self, state: State) -> None:
        """Send the state to rank 0."""
        if self.comm.rank == 0:
            self.judge(0, state._replace(answered=self.question))
        else:
            self.send((self.comm.rank, state._replace(answered=self.question)), 0)

    def receive_question(self) -> bool:
        """Return whether rank 0 has asked for a report."""
        before = self.question
        while self.comm.rank and self.comm.iprobe():
            self.question = self.comm.recv()
        return self.question > before

    def send(self, message: Any, rank: int) -> None:
        self.sent = [request for request in self.sent if not request.Test()]
        self.sent.append(self.comm.isend(message, rank))

    def receive(self) -> None:
        """Judge the reports that have arrived, on rank 0."""
        while self.comm.rank == 0 and self.comm.iprobe():
            self.judge(*self.comm.recv())

    def judge(self, rank: int, state: State) -> None:
        """Record a state on rank 0; print who waits for whom; end a deadlock."""
        self.states[rank], self.heard[rank] = state, time.monotonic()
        ranks = deadlocked_ranks(self.states)
        calls = [(one, self.states[one].calls) for one in ranks]
        if calls != self.suspected:
            self.suspected = calls
            self.question += 1
            for one in ranks:
                if one != 0:
                    self.send(self.question, one)
        waited = max(one.waited for one in self.states.values())
        if ranks and all(self.states[one].answered == self.question for one in ranks):
            self.print(f"deadlock of {rank_text(ranks)}; the run ends")
            self.stop()
        elif waited == 0:
            self.printed = 0.0
        elif waited >= max(2 * self.printed, 1.5 * self.seconds):  # all have reported
            self.printed = waited
            self.print(f"the longest call has lasted {waited:.3g} s; the run continues")

    def print(self, title: str) -> None:
        now = time.monotonic()
        ranks_by_text: dict[str, list[int]] = {}
        for rank in sorted(self.states):
            age = now - self.heard[rank]
            text = state_text(self.states, rank, age if age > self.seconds else 0.0)
            ranks_by_text.setdefault(text, []).append(rank)
        lines = [f"{rank_text(ranks)}: {text}" for text, ranks in ranks_by_text.items()]
        sys.stderr.write("\n  ".join([f"watchdog: {title}", *lines]) + "\n")
        sys.stderr.flush()


def describe(comm: Any, call: tuple, begun: float) -> Call:
    """Return what the call waits for."""
    operation, role, peer, tag, buffer = call
    tag = getattr(tag, "name", tag)
    text = f"{operation}({role}={peer}, tag={tag}, {length(call)} bytes)"
    members = comm.members
    if role == "size":
        key = (operation, *comm.lineage)
        return Call(text, members, collective=key, begun=begun)
    if role == "requests" or peer == ANY:
        others = tuple(one for k, one in enumerate(members) if k != comm.rank)
        return Call(text, others, any_peer=True, begun=begun)
    return Call(text, (members[peer],), begun=begun)


def length(call: tuple) -> int:
    """Return the bytes of a call's buffer."""
    buffer = call[-1]
    return getattr(buffer, "nbytes", len(buffer) if buffer is not None else 0)


def in_blocking_call(frame: Any) -> bool:
    """Return whether a thread is in a communicator's call or waits for a thread."""
    name = frame.f_code.co_filename if frame else ""
    return name.startswith(FOLDER) or name in (WINDOW, threading.__file__)


def place(frame: Any) -> str:
    """Return the innermost function outside of this package's communication."""
    innermost = frame
    while frame and of_library(frame.f_code.co_filename):
        frame = frame.f_back
    frame = frame or innermost
    if not frame:
        return "an unknown place"
    code = frame.f_code
    return f"{code.co_name} ({Path(code.co_filename).name}:{frame.f_lineno})"


def of_library(name: str) -> bool:
    return name.startswith((WIRE, STANDARD, "<frozen")) or "site-packages" in name


def state_text(states: Mapping[int, State], rank: int, age: float) -> str:
    """Return the state of a rank in words; `age` of an old report in seconds, or 0."""
    state = states[rank]
    if state.ended:
        return "ended"
    if age:
        return f"no report for {age:.0f} s; before, in {state.place}"
    if not state.calls:
        return f"running {state.place}"
    waits = []
    for call in state.calls:
        peers = [peer for peer in call.peers if not has_entered(call, states.get(peer))]
        several = "any of " * (call.any_peer and len(peers) > 1)
        waits.append(f"waiting for {several}{rank_text(peers)} in {call.text}")
    return f"{' and '.join(waits)}, called by {state.place}"


def rank_text(ranks: Sequence[int]) -> str:
    """Return the ranks as text: "rank 3", "ranks 0-2, 5"."""
    parts: list[list[int]] = []
    for rank in sorted(ranks):
        if parts and parts[-1][-1] == rank - 1:
            parts[-1][1:] = [rank]
        else:
            parts.append([rank])
    text = ", ".join("-".join(map(str, part)) for part in parts)
    return f"rank{'s' * (len(ranks) != 1)} {text}"
