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
from typing import Any

import numpy as np

from dml.types import BadInput, Comm
from dml.wire.collectives import broadcast
from dml.wire.comm.plain import as_comm

COORDINATOR = "DML_COORDINATOR"  # sets the address of rank 0
NAMES_BYTES = 4096  # most bytes of the text of all addresses
BACKLOG = 4096  # connections that may wait to be accepted
CONNECT_TIMEOUT = 2.0  # seconds
LOOPBACK = "127.0.0.1"
ANY_INTERFACE = "[::]"
SIOCGIFADDR = 0x8915  # Linux's ioctl for the address of an interface


def coordinator_address(comm: Comm) -> str:
    """Return address:port on rank 0's host, equal on all ranks; collective.

    Rank 0 listens at a free port and broadcasts its addresses. The first rank of each
    host tries to connect to each address, and the first address that all hosts reach is
    chosen: often other hosts cannot reach some addresses of a host (127.0.1.1, a
    bridge, a private network).
    """
    comm = as_comm(comm)
    hosts = comm.platform.hosts()
    with ExitStack() as open_until_chosen:
        text = np.zeros(NAMES_BYTES, np.uint8)
        if comm.rank == 0:
            one_host = max(hosts) == 0
            names = ",".join(listen(open_until_chosen, one_host)).encode()
            text[: len(names)] = np.frombuffer(names, np.uint8)[:NAMES_BYTES]
        broadcast(comm, text)
        candidates = text.tobytes().rstrip(b"\0").decode().split(",")
        reachable = np.ones(len(candidates), np.int32)
        first_of_host = hosts.index(hosts[comm.rank]) == comm.rank
        if first_of_host:
            reachable[:] = [connects(candidate) for candidate in candidates]
        comm.Allreduce(None, reachable, np.minimum)
    if not reachable.any():
        raise BadInput(
            f"expected an address of rank 0's host that all hosts reach, "
            f"got {', '.join(candidates) or 'none'}; set "
            f"{COORDINATOR}=<address[:port]>, with a port that is free there"
        )
    return candidates[int(reachable.argmax())]


def listen(stack: ExitStack, one_host: bool) -> list[str]:
    """Listen at a free port, or at the port of DML_COORDINATOR; return the addresses.

    If the port cannot be opened, return the setting, to which no host can connect.

    Args:
      stack: Closes the listening socket.
      one_host: Whether all ranks are on this host, and use the loopback interface.
    """
    setting = os.environ.get(COORDINATOR, "")
    address, port = re.findall(r"^(.*?)(?::(\d+))?$", setting)[0]
    loopback = one_host and not address
    dual_stack = socket.has_dualstack_ipv6() and not loopback
    family = socket.AF_INET6 if dual_stack else socket.AF_INET
    interface = LOOPBACK if loopback else ""  # all interfaces
    try:
        server = socket.create_server(
            (interface, int(port or 0)),
            family=family,
            backlog=BACKLOG,
            dualstack_ipv6=dual_stack,
        )
    except (OSError, OverflowError):
        return [setting]
    open_port = stack.enter_context(server).getsockname()[1]
    local = [LOOPBACK] if one_host else addresses()
    candidates = [address] if address else local
    return [f"{candidate}:{open_port}" for candidate in candidates]


def bind_address(address_port: str) -> str:
    """Return the address at which rank 0 listens: the given one if this host has it.

    JAX's default is every interface. Any process that reaches the port can abort the
    run, because the coordinator does not authenticate connections.
    """
    address, _, port = address_port.rpartition(":")
    try:
        family, *_, resolved = socket.getaddrinfo(address.strip("[]"), 0)[0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind(resolved)
    except OSError:  # an address of a router or a load balancer
        return f"{ANY_INTERFACE}:{port}"
    return address_port


def addresses() -> list[str]:
    """Return the addresses that the host's name resolves to, then its interfaces'."""
    candidates = []
    with suppress(OSError):
        resolved = socket.getaddrinfo(socket.gethostname(), None)
        candidates += [str(info[4][0]) for info in resolved]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, name in socket.if_nameindex():
            with suppress(OSError):  # no IPv4 address, or not Linux
                request = struct.pack("256s", name.encode()[:15])
                answer = fcntl.ioctl(any_socket, SIOCGIFADDR, request)
                candidates.append(socket.inet_ntoa(answer[20:24]))
    external = [
        address
        for address in map(ip_address, dict.fromkeys(candidates))
        if not address.is_loopback
    ]
    return [
        f"[{address}]" if address.version == 6 else str(address) for address in external
    ]


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
    import jax

    config: Any = jax.config  # whose options have no types before jax 0.12
    return config.jax_platforms == "cpu" or not Path("/dev/nvidiactl").exists()


def check_host_names(comm: Comm) -> None:
    """Raise if a host's own name resolves to a loopback address, or not; collective.

    gloo connects to the address of that name, and would wait for its timeout.
    """
    try:
        resolved = socket.getaddrinfo(socket.gethostname(), None)
        unreachable = ip_address(str(resolved[0][4][0])).is_loopback
    except OSError:
        unreachable = True
    lowest = np.array([comm.rank if unreachable else comm.size], np.int32)
    comm.Allreduce(None, lowest, np.minimum)
    if lowest[0] < comm.size:
        raise BadInput(
            "expected the name of every host to resolve to an address that other hosts "
            f"reach, got a loopback address or none on the host of rank {lowest[0]}; "
            "write the host's address in its /etc/hosts"
        )
