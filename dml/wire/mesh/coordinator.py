"""Choose an address of rank 0 that all hosts can reach.

rank 0 listens at   127.0.1.1:8000   172.17.0.1:8000   10.0.0.1:8000
other hosts         not reachable    not reachable     reachable ► chosen
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

COORDINATOR = "DML_COORDINATOR"  # sets the address of rank 0
NAMES_BYTES = 4096  # of the text of all addresses, at most
BACKLOG = 4096  # simultaneous connections
CONNECT_TIMEOUT = 2.0  # timeout of a connection in seconds
LOOPBACK = "127.0.0.1"
ANY_INTERFACE = "[::]"
SIOCGIFADDR = 0x8915  # Linux's ioctl for the address of an interface


def coordinator_address(comm: Comm) -> str:
    """Return address:port on rank 0's host, equal on all ranks; collective.

    Rank 0 listens at a free port and broadcasts its addresses. The first rank of each
    host tries to connect to each, and the first address that all hosts reach is chosen:
    some addresses of a host are often not reachable from others (127.0.1.1, a bridge, a
    private network).
    """
    hosts = comm.platform.hosts()
    with ExitStack() as open_until_chosen:
        text = np.zeros(NAMES_BYTES, np.uint8)
        if comm.rank == 0:
            names = ",".join(listen(open_until_chosen, max(hosts) == 0)).encode()
            text[: len(names)] = np.frombuffer(names, np.uint8)[:NAMES_BYTES]
        broadcast(comm, text)
        candidates = text.tobytes().rstrip(b"\0").decode().split(",")
        reachable = np.ones(len(candidates), np.int32)
        if hosts.index(hosts[comm.rank]) == comm.rank:
            reachable[:] = [connects(candidate) for candidate in candidates]
        comm.Allreduce(None, reachable, np.minimum)
    if not reachable.any():
        raise BadInput(
            f"expected an address of rank 0's host that all hosts reach, "
            f"got {', '.join(candidates) or 'none'}; set "
            f"{COORDINATOR}=<address[:port]>, with a port that is free there"
        )
    return candidates[int(reachable.argmax())]


def listen(stack: ExitStack, alone: bool) -> list[str]:
    """Listen at a free port, or at the port of the setting; return the addresses.

    If the port cannot be opened, return the setting, to which no host can connect. A
    run on one host listens on the loopback interface.
    """
    setting = os.environ.get(COORDINATOR, "")
    address, port = re.findall(r"^(.*?)(?::(\d+))?$", setting)[0]
    loopback = alone and not address
    both = socket.has_dualstack_ipv6() and not loopback
    family = socket.AF_INET6 if both else socket.AF_INET
    interface = LOOPBACK if loopback else ""  # all interfaces
    try:
        server = socket.create_server(
            (interface, int(port or 0)),
            family=family,
            backlog=BACKLOG,
            dualstack_ipv6=both,
        )
    except (OSError, OverflowError):
        return [setting]
    number = stack.enter_context(server).getsockname()[1]
    hosts = [address] if address else [LOOPBACK] if alone else addresses()
    return [f"{host}:{number}" for host in hosts]


def bind_address(address_port: str) -> str:
    """Return where rank 0 listens: on the interface of the address, if it has one.

    JAX's default is every interface. Any process that reaches the port can abort the
    run, because the coordinator does not authenticate connections.
    """
    address, _, port = address_port.rpartition(":")
    try:
        family, *_, known = socket.getaddrinfo(address.strip("[]"), 0)[0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind(known)
    except OSError:  # an address of a router or a load balancer
        return f"{ANY_INTERFACE}:{port}"
    return address_port


def addresses() -> list[str]:
    """Return the addresses of this host: of its name, then of its interfaces."""
    candidates = []
    with suppress(OSError):
        known = socket.getaddrinfo(socket.gethostname(), None)
        candidates += [str(info[4][0]) for info in known]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, name in socket.if_nameindex():
            with suppress(OSError):  # no IPv4 address, or not Linux
                request = struct.pack("256s", name.encode()[:15])
                answer = fcntl.ioctl(any_socket, SIOCGIFADDR, request)
                candidates.append(socket.inet_ntoa(answer[20:24]))
    outer = [
        each
        for each in map(ip_address, dict.fromkeys(candidates))
        if not each.is_loopback
    ]
    return [f"[{each}]" if each.version == 6 else str(each) for each in outer]


def connects(address_port: str) -> bool:
    """Return whether a connection to address:port succeeds."""
    address, _, port = address_port.rpartition(":")
    with suppress(OSError, ValueError):
        socket.create_connection(
            (address.strip("[]"), int(port)), CONNECT_TIMEOUT
        ).close()
        return True
    return False


def on_cpu() -> bool:
    """Return whether JAX will use CPUs, without initialising its backends."""
    platforms = jax.config.jax_platforms  # type: ignore[attr-defined]
    return platforms == "cpu" or not Path("/dev/nvidiactl").exists()


def known_by_name(comm: Comm) -> None:
    """Raise if the name of a host resolves to its loopback address; collective.

    gloo connects to the address of that name, and would wait for its timeout.
    """
    try:
        name = socket.getaddrinfo(socket.gethostname(), None)
        lost = ip_address(str(name[0][4][0])).is_loopback
    except OSError:
        lost = True
    lowest = comm.rank if lost else comm.size
    first = np.array([lowest], np.int32)
    comm.Allreduce(None, first, np.minimum)
    if first[0] < comm.size:
        raise BadInput(
            "expected the name of every host to resolve to an address that the others "
            f"reach, got no such one on rank {first[0]}'s host; write it in /etc/hosts"
        )
