"""Reports which rank stops a training, also inside of XLA or MPI, and ends it.

    rank 0   main thread   step 41 ── psum … ────────────── waits in XLA
             watch thread    ▲ states ▲ of all ranks ──► table after `seconds`, exit
    rank 1   main thread   step 41 ── read a file … ─────── never returns
             watch thread    └─ every second: step, call, source line

Threads send the states by sockets of their own, since the main thread and MPI may both
be busy. A step is what the program says it is: a call of `step()`.
"""

import json
import os
import secrets
import selectors
import socket
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

import numpy as np

from dml.types import BadInput, Comm
from dml.wire.collectives.broadcast import broadcast
from dml.wire.comm.plain import as_comm
from dml.wire.comm.watch_state import WatchState, state_of_threads, table
from dml.wire.mesh.coordinator import bind_address, coordinator_address

EX_TEMPFAIL = 75  # exit code after which a scheduler may start the run again
PERIOD = 1.0  # seconds between two states of a rank, at most
GRACE = 2.0  # seconds for the states of other ranks, after one has died
TOKEN_BYTES = 16
LONGEST = 1 << 20  # bytes of a message
LISTS = ("peers", "others")  # fields of a state that JSON returns as lists


@dataclass
class Client:
    """A connection to rank 0, of rank `rank` once it has sent the token."""

    rank: int = 0
    unread: bytes = b""


def watch(
    comm: Comm, seconds: float = 300.0, file: str = "", code: int = EX_TEMPFAIL
) -> "Watch":
    """Return a context that ends the run if a rank completes no step for some time.

        with dml.watch(MPI.COMM_WORLD, seconds=120) as watch:
            for batch in batches:
                params = step(params, batch)
                watch.step()

    A table of all ranks is printed: host, step, call, source line, and the ranks for
    which each one waits; then all ranks exit without finalization of MPI. A rank whose
    process has ended is reported within two seconds. The first step includes
    compilation. Virtual ranks are not watched: their deadlocks end a run by themselves.

    Args:
      comm: The ranks; a communicator of mpi4py, too. The call is collective.
      seconds: Longest time between two steps of a rank.
      file: File that gets the table, too; none: "".
      code: Exit code of all ranks, by which a scheduler may start the run again.
    """
    if not seconds > 0 or not 0 < code < 256:
        raise BadInput(
            "expected seconds above 0 and an exit code from 1 to 255, got "
            f"{seconds} and {code}; correct them"
        )
    comm = as_comm(comm)
    if comm.platform.virtual:
        return Watch(0, 1, "", "", seconds, file, code)
    address = coordinator_address(comm)
    token = np.frombuffer(secrets.token_bytes(TOKEN_BYTES), np.uint8).copy()
    broadcast(comm, token)
    found = Watch(
        comm.rank, comm.size, address, bytes(token).hex(), seconds, file, code
    )
    if comm.rank == 0:
        found.listen()
    comm.Barrier()
    found.start()
    return found


class Watch:
    """A rank's part of a watch; see `watch`.

    Args:
      rank: This rank.
      size: Number of ranks.
      address: Address and port at which rank 0 listens; none: nothing is watched.
      token: Text that proves that a connection is one of this run.
      seconds: Longest time between two steps of a rank.
      file: File of the table.
      code: Exit code.
    """

    def __init__(
        self,
        rank: int,
        size: int,
        address: str,
        token: str,
        seconds: float,
        file: str = "",
        code: int = EX_TEMPFAIL,
    ):
        self.rank, self.size, self.address, self.token = rank, size, address, token
        self.seconds, self.file, self.code = seconds, file, code
        self.steps, self.begun = 0, time.monotonic()
        self.left = ""  # how the main thread has left the context
        self.closing = threading.Event()
        self.thread: threading.Thread | None = None
        self.server: socket.socket | None = None
        # On rank 0, by rank: the last states, and when they were received.
        self.states: dict[int, WatchState] = {}
        self.received: dict[int, float] = {}
        self.lost_at = 0.0  # when the first connection of a rank was lost

    def step(self) -> None:
        """State that this rank has completed a step."""
        self.steps += 1
        self.begun = time.monotonic()

    def __enter__(self) -> Self:
        self.begun = time.monotonic()
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.left = f"left by {error_type.__name__}" if error_type else "left"
        self.closing.set()
        if self.thread and self.rank:
            self.thread.join(PERIOD)

    def listen(self) -> None:
        """Listen at the address, on rank 0."""
        address, _, port = bind_address(self.address).rpartition(":")
        family = socket.AF_INET6 if address.startswith("[") else socket.AF_INET
        self.server = socket.create_server(
            (address.strip("[]"), int(port)), family=family, backlog=self.size
        )

    def start(self) -> None:
        """Start the thread of this rank."""
        run = self.serve if self.rank == 0 else self.report
        self.thread = threading.Thread(target=run, name="dml.watch", daemon=True)
        self.thread.start()

    def state(self) -> WatchState:
        """Return the state of this rank."""
        shown = state_of_threads(threading.get_ident())
        seconds = time.monotonic() - self.begun
        host = socket.gethostname()
        return WatchState(self.steps, seconds, left=self.left, host=host, **shown)

    def period(self) -> float:
        return min(PERIOD, self.seconds / 4)

    def report(self) -> None:
        """Send the states of this rank to rank 0, until the context is left."""
        address, _, port = self.address.rpartition(":")
        rank_0 = socket.create_connection((address.strip("[]"), int(port)), 60)
        rank_0.settimeout(self.period())
        with rank_0:
            send(rank_0, {"token": self.token, "rank": self.rank})
            while True:
                leaving = self.closing.is_set()
                try:
                    send(rank_0, self.state()._asdict())
                    if leaving:
                        return
                    if not rank_0.recv(1):
                        self.tell(
                            "the process of rank 0 has ended", {self.rank: self.state()}
                        )
                    self.end()
                except TimeoutError:
                    pass
                except OSError:
                    return

    def serve(self) -> None:
        """Receive the states of all ranks; end the run if one completes no step."""
        assert self.server
        now = time.monotonic()
        self.states = dict.fromkeys(range(self.size), WatchState())
        self.received = dict.fromkeys(range(self.size), now)
        with self.server, selectors.DefaultSelector() as selector:
            selector.register(self.server, selectors.EVENT_READ)
            while not all(state.left for state in self.states.values()):
                for key, _ in selector.select(self.period()):
                    if key.fileobj is self.server:
                        client = self.server.accept()[0]
                        selector.register(client, selectors.EVENT_READ, Client())
                    elif not self.read(key.fileobj, key.data):
                        selector.unregister(key.fileobj)
                        key.fileobj.close()  # type: ignore[union-attr]
                        self.lose(key.data.rank)
                self.states[0], self.received[0] = self.state(), time.monotonic()
                clients = [
                    key.fileobj for key in selector.get_map().values() if key.data
                ]
                self.judge(clients)
            for key in selector.get_map().values():
                key.fileobj.close()  # type: ignore[union-attr]

    def read(self, connection: Any, client: "Client") -> bool:
        """Store the states that have arrived; return whether the connection is kept."""
        try:
            received = connection.recv(1 << 16)
            *lines, client.unread = (client.unread + received).split(b"\n")
            for line in lines:
                message = json.loads(line)
                if not client.rank:
                    if not secrets.compare_digest(message["token"], self.token):
                        return False
                    client.rank = int(message["rank"])
                else:
                    message |= {name: tuple(message[name]) for name in LISTS}
                    self.states[client.rank] = WatchState(**message)
                    self.received[client.rank] = time.monotonic()
        except (OSError, ValueError, KeyError, TypeError):  # not of a rank of this run
            return False
        return bool(received) and len(client.unread) < LONGEST

    def lose(self, rank: int) -> None:
        """Note that a rank's connection is closed; a death unless it has left."""
        if rank and not self.states[rank].left:
            self.states[rank] = self.states[rank]._replace(left="its process has ended")
            self.lost_at = self.lost_at or time.monotonic()

    def judge(self, clients: list[Any]) -> None:
        """End the run if a rank has died or has completed no step for too long."""
        now = time.monotonic()
        states = {rank: self.aged(rank, now) for rank in self.states}
        still = max((s.seconds for s in states.values() if not s.left), default=0.0)
        died = self.lost_at and now > self.lost_at + min(GRACE, self.seconds)
        if died or still > self.seconds:
            why = "a process has ended" if died else f"no step for {still:.0f} s"
            self.tell(why, states)
            for client in clients:
                with suppress(OSError):
                    client.sendall(b"!")
            self.end()

    def aged(self, rank: int, now: float) -> WatchState:
        """Return the state of a rank, with the time since its last report."""
        state, age = self.states[rank], now - self.received[rank]
        if state.left or age < 3 * PERIOD:
            return state
        call = f"no report for {age:.0f} s; before: {state.call or 'none'}"
        return state._replace(seconds=state.seconds + age, call=call, kind="")

    def tell(self, why: str, states: dict[int, WatchState]) -> None:
        """Print a table, and write it to the file."""
        text = f"dml.watch: {why}; all ranks exit with {self.code}\n{table(states)}"
        sys.stderr.write(text)
        sys.stderr.flush()
        if self.file:
            with suppress(OSError):
                Path(self.file).write_text(text, "utf-8")

    def end(self) -> NoReturn:
        """Exit without finalization of MPI, which might wait."""
        time.sleep(0.1)  # for the messages to other ranks
        os._exit(self.code)


def send(connection: socket.socket, message: dict[str, Any]) -> None:
    connection.sendall(json.dumps(message).encode() + b"\n")
