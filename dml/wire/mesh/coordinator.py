"""Where ranks of many hosts meet: a communicator in, an address of rank 0's out.

rank 0: I listen at 127.0.1.1:8000? 172.17.0.1:8000? 10.0.0.1:8000?
others:             nobody          nobody           heard ► all meet there
"""

import fcntl
import os
import re
import socket
import struct
from contextlib import ExitStack, suppress
from ipaddress import ip_address
from pathlib import Path

import jax
import numpy as np

from dml.types import BadInput, Comm
from dml.wire.collectives import broadcast

COORDINATOR = "DML_COORDINATOR"  # rank 0's address, where it cannot be found
NAMES_BYTES = 4096  # as much as all its addresses take
BACKLOG = 4096  # hosts that may knock at once
KNOCK = 2.0  # seconds until an address counts as one that leads nowhere
SIOCGIFADDR = 0x8915  # Linux's question for an interface's address


def meeting_point(comm: Comm) -> str:
    """Return address:port of rank 0's host, free and equal on all ranks; collective.

    Rank 0 opens a port and tells where; the first rank of each host knocks, and the
    first door that all found is taken: a host's own idea of its address is often
    one that no other can use (127.0.1.1, a bridge, a network of its own).
    """
    hosts = comm.platform.hosts()
    with ExitStack() as open_until_chosen:
        text = np.zeros(NAMES_BYTES, np.uint8)
        if comm.rank == 0:
            names = ",".join(doors(open_until_chosen, max(hosts) == 0)).encode()
            text[: len(names)] = np.frombuffer(names, np.uint8)[:NAMES_BYTES]
        broadcast(comm, text)
        found = text.tobytes().rstrip(b"\0").decode().split(",")
        heard = np.ones(len(found), np.int32)
        if hosts.index(hosts[comm.rank]) == comm.rank:
            heard[:] = [answers(door) for door in found]
        comm.Allreduce(None, heard, np.minimum)
    if not heard.any():
        raise BadInput(
            f"expected an address of rank 0's host that all hosts reach, "
            f"got {', '.join(found) or 'none'}; set "
            f"{COORDINATOR}=<address[:port]>, with a port that is free there"
        )
    return found[int(heard.argmax())]


def doors(stack: ExitStack, alone: bool) -> list[str]:
    """Listen at a free port, or the one that is set; return all ways to come there.

    Where none can be opened, return what was asked for: nobody will hear an answer.
    """
    asked = os.environ.get(COORDINATOR, "")
    address, port = re.findall(r"^(.*?)(?::(\d+))?$", asked)[0]
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    try:
        door = socket.create_server(
            ("", int(port or 0)), family=family, backlog=BACKLOG, dualstack_ipv6=both
        )
    except (OSError, OverflowError):
        return [asked]
    number = stack.enter_context(door).getsockname()[1]
    ways = [address] if address else ["127.0.0.1"] if alone else addresses()
    return [f"{way}:{number}" for way in ways]


def addresses() -> list[str]:
    """Return the addresses of this host, its name's before its interfaces'."""
    found = []
    with suppress(OSError):
        known = socket.getaddrinfo(socket.gethostname(), None)
        found += [str(info[4][0]) for info in known]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, name in socket.if_nameindex():
            with suppress(OSError):  # it has none of version 4, or this is no Linux
                asked = struct.pack("256s", name.encode()[:15])
                answer = fcntl.ioctl(any_socket, SIOCGIFADDR, asked)
                found.append(socket.inet_ntoa(answer[20:24]))
    outer = [
        one for one in map(ip_address, dict.fromkeys(found)) if not one.is_loopback
    ]
    return [f"[{one}]" if one.version == 6 else str(one) for one in outer]


def answers(door: str) -> bool:
    """Say whether somebody listens at address:port."""
    address, _, port = door.rpartition(":")
    with suppress(OSError, ValueError):
        socket.create_connection((address.strip("[]"), int(port)), KNOCK).close()
        return True
    return False


def on_cpu() -> bool:
    """Say whether JAX will compute on CPUs, before it does: it must not look yet."""
    wanted = jax.config.jax_platforms  # type: ignore[attr-defined]
    return wanted == "cpu" or not Path("/dev/nvidiactl").exists()


def known_by_name(comm: Comm) -> None:
    """Stop where a host's own name leads to nobody else; collective.

    gloo meets at the address of that name, and would wait for long.
    """
    try:
        name = socket.getaddrinfo(socket.gethostname(), None)
        lost = ip_address(str(name[0][4][0])).is_loopback
    except OSError:
        lost = True
    bad = comm.rank if lost else comm.size
    first = np.array([bad], np.int32)
    comm.Allreduce(None, first, np.minimum)
    if first[0] < comm.size:
        raise BadInput(
            "expected every host's own name to lead to an address that the others "
            f"reach, got no such one on rank {first[0]}'s host; write it in /etc/hosts"
        )
