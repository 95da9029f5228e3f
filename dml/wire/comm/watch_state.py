"""State of the main thread of a rank, and a table of all ranks.

    rank  host   step  seconds  in                                       waits for
       0  node1    41     30.2  comm.Recv(x, source=1)  train.py:30      rank 1
       1  node1    41     30.1  step(params).block_until_ready()  train.py:22

A call under way is found by the position of the instruction in the source; the value of
a source or destination is computed if it consists of names, attributes and arithmetic.
"""

import ast
import linecache
import re
import sys
import sysconfig
import threading
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from dml.wire.comm.watchdog import rank_text

DML = str(Path(__file__).parents[2])
LIBRARIES = (
    DML,
    *{sysconfig.get_path(name) for name in ("stdlib", "platlib", "purelib")},
)
JAX = re.compile(r"[/\\\\]jax(lib)?[/\\\\]")  # folders of JAX
# position of the peer among the arguments of mpi4py's calls
PEERS = {
    **dict.fromkeys(("Send", "Ssend", "Bsend", "Rsend"), ("dest", 1)),
    **dict.fromkeys(("send", "ssend", "bsend"), ("dest", 1)),
    **dict.fromkeys(("Recv", "recv"), ("source", 1)),
    **dict.fromkeys(("Probe", "probe", "Mprobe", "mprobe"), ("source", 0)),
    **{"Sendrecv": ("source", 4), "sendrecv": ("source", 4)},
}
COLLECTIVE = re.compile(
    "(?i:i?(barrier|bcast|reduce|allreduce|gatherv?|allgatherv?|scatterv?|alltoall[vw]?|"
    "reduce_scatter(_block)?|scan|exscan))|Split|Dup|Create|Free|block_until_ready|"
    "process_allgather|sync_global_devices"
)
PLAIN = (
    *(ast.Name, ast.Attribute, ast.Constant, ast.BinOp, ast.UnaryOp),
    *(ast.operator, ast.unaryop, ast.Load),
)


class WatchState(NamedTuple):
    """State of a rank.

    Attributes:
      step: Number of steps that it has completed.
      seconds: Seconds since the last one.
      call: Source text of the call of the main thread outside of libraries.
      place: File and line of the call.
      kind: "peer", "collective" (also a call of JAX) or "".
      peers: Ranks that a call between two ranks needs.
      others: Places of further threads that are outside of libraries.
      left: How the rank has left, if it has.
      host: Name of its host.
    """

    step: int = 0
    seconds: float = 0.0
    call: str = ""
    place: str = ""
    kind: str = ""
    peers: tuple[int, ...] = ()
    others: tuple[str, ...] = ()
    left: str = ""
    host: str = ""


def state_of_threads(own: int | None) -> dict[str, Any]:
    """Return the fields of a WatchState that the threads of this process show.

    Args:
      own: Identifier of a thread that is left out.
    """
    frames = sys._current_frames()
    main = threading.main_thread().ident
    innermost = frames.get(main or 0)
    frame = user_frame(innermost)
    others = (
        user_frame(each) for key, each in frames.items() if key not in (main, own)
    )
    places = tuple(f"{each.f_code.co_name} at {place(each)}" for each in others if each)
    if frame is None:
        return {"others": places}
    call = text_of(frame)
    kind, peers = peers_of(call, frame)
    if not kind and innermost and JAX.search(innermost.f_code.co_filename):
        kind = "collective"  # a compiled program may wait for other devices
    fields = {"call": call, "place": place(frame), "kind": kind, "peers": peers}
    return {**fields, "others": places}


def user_frame(frame: FrameType | None) -> FrameType | None:
    """Return the innermost frame outside of libraries."""
    while isinstance(frame, FrameType) and (
        frame.f_code.co_filename.startswith((*LIBRARIES, "<frozen"))
    ):
        frame = frame.f_back
    return frame if isinstance(frame, FrameType) else None


def place(frame: FrameType) -> str:
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


def text_of(frame: FrameType) -> str:
    """Return the source of the expression that a frame evaluates, in one line."""
    positions = list(frame.f_code.co_positions())
    line, last, start, stop = positions[frame.f_lasti // 2]
    name = frame.f_code.co_filename
    if name == "<string>":  # Python 3.13 has lines of `python -c` under this name
        return ""
    if line is None or last is None or start is None or stop is None:
        return linecache.getline(name, frame.f_lineno).strip()
    lines = [linecache.getline(name, n).encode() for n in range(line, last + 1)]
    lines[-1] = lines[-1][:stop]
    lines[0] = lines[0][start:]
    return " ".join(b"".join(lines).decode(errors="replace").split())


def peers_of(call: str, frame: FrameType) -> tuple[str, tuple[int, ...]]:
    """Return the kind of a call, and the ranks that it needs if they are known."""
    try:
        node = ast.parse(call, mode="eval").body
    except SyntaxError:
        return "", ()
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return "", ()
    name = node.func.attr
    if COLLECTIVE.fullmatch(name):
        return "collective", ()
    if name not in PEERS:
        return "", ()
    keyword, position = PEERS[name]
    given = {each.arg: each.value for each in node.keywords}
    argument = given.get(keyword)
    if argument is None and position < len(node.args):
        argument = node.args[position]
    if argument is None or not all(isinstance(n, PLAIN) for n in ast.walk(argument)):
        return "peer", ()
    try:
        code = compile(ast.Expression(argument), "", "eval")
        peer = int(eval(code, frame.f_globals, dict(frame.f_locals)))
    except Exception:  # of the expression of a user
        return "peer", ()
    return "peer", (peer,) if peer >= 0 else ()


def waits_for(rank: int, states: Mapping[int, WatchState]) -> str:
    """Return the ranks for which a rank waits, as text; nothing if it computes."""
    own = states[rank]
    if own.left or not own.kind:
        return ""
    if own.kind == "peer":
        return rank_text(own.peers) if own.peers else "any rank"
    elsewhere = [
        other
        for other, state in states.items()
        if state.left or (state.step, state.call, state.place) != own[0:1] + own[2:4]
    ]
    return rank_text(elsewhere) if elsewhere else "all are in it"


def table(states: Mapping[int, WatchState]) -> str:
    """Return a table of what all ranks do."""
    head = ("rank", "host", "step", "seconds", "in", "waits for")
    rows = [head]
    for rank, state in sorted(states.items()):
        where = state.left or f"{state.call}  {state.place}"
        waits = waits_for(rank, states)
        row = (str(rank), state.host, str(state.step), f"{state.seconds:.1f}", where)
        rows.append((*row, waits))
        rows += [("", "", "", "", f"thread: {other}", "") for other in state.others]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    left = (1, 4, 5)
    lines = [
        "  ".join(
            cell.ljust(width) if i in left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    return "\n".join(lines) + "\n"
