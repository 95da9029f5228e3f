"""Where ranks meet, and meshes of one device; larger ones are in tests/mpi."""

import socket

import jax
import pytest

from dml import sim
from dml.sim.networks.hosts import Hosts
from dml.types import BadInput
from dml.wire.mesh import coordinator as meeting
from dml.wire.mesh.devices import mesh, start


def test_the_first_address_that_all_hosts_reach_is_taken(monkeypatch):
    """Two ranks a host: only the first of each knocks, and what one misses is out."""
    ways = ["172.17.0.1", "10.0.0.1", "[fd00::1]", "10.0.0.3"]
    knocks = []

    def answers(door):
        knocks.append(door)
        way = door.rpartition(":")[0]
        missed = way == "10.0.0.1" and len(knocks) > len(ways)  # by the second host
        return way != "172.17.0.1" and not missed

    monkeypatch.setattr(meeting, "addresses", lambda: ways)
    monkeypatch.setattr(meeting, "connects", answers)
    found = sim.run(meeting.coordinator_address, 4, Hosts(2, 2))
    assert len(knocks) == 2 * len(ways)
    assert {one.rpartition(":")[0] for one in found} == {"[fd00::1]"}


def test_no_way_to_rank_0_is_one_line_on_all_ranks(monkeypatch):
    monkeypatch.setattr(meeting, "addresses", lambda: ["172.17.0.1"])
    monkeypatch.setattr(meeting, "connects", lambda door: False)
    with pytest.raises(
        BadInput, match=r"all hosts reach, got 172.17.0.1:\d+; set DML_"
    ):
        sim.run(meeting.coordinator_address, 2, Hosts(2, 1))


@pytest.mark.parametrize("asked", ["127.0.0.1", "[::1]", "localhost"])
def test_an_address_that_is_set_is_the_only_one(monkeypatch, asked):
    monkeypatch.setenv("DML_COORDINATOR", asked)
    monkeypatch.setattr(meeting, "connects", lambda door: True)
    assert sim.run(meeting.coordinator_address, 1)[0].rpartition(":")[0] == asked


def test_a_port_that_is_set_is_taken_and_one_in_use_is_named(monkeypatch):
    with socket.create_server(("", 0)) as taken:
        door = f"127.0.0.1:{taken.getsockname()[1]}"
        monkeypatch.setenv("DML_COORDINATOR", door)
        monkeypatch.setattr(meeting, "connects", lambda door: False)
        with pytest.raises(BadInput, match=f"got {door}; set DML_COORDINATOR"):
            sim.run(meeting.coordinator_address, 2)
    monkeypatch.undo()
    monkeypatch.setenv("DML_COORDINATOR", door)
    assert sim.run(meeting.coordinator_address, 2) == [door, door]


@pytest.mark.parametrize(
    "address, interface",
    [
        ("127.0.0.1:8000", "127.0.0.1:8000"),
        ("localhost:8000", "localhost:8000"),
        ("192.0.2.77:8000", "[::]:8000"),  # of no interface: a router's, say
        ("no-such-host.invalid:8000", "[::]:8000"),
    ],
)
def test_rank_0_listens_on_the_interface_of_the_address(address, interface):
    assert meeting.bind_address(address) == interface


def test_ranks_of_one_host_choose_the_loopback_interface():
    assert sim.run(meeting.coordinator_address, 2)[0].startswith("127.0.0.1:")


def test_addresses_are_of_interfaces_too_and_loopback_is_none(monkeypatch):
    def unknown(*_):
        raise OSError("no such name")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    for one in meeting.addresses():
        assert not one.startswith(("127.", "[::1"))
    monkeypatch.setattr(
        meeting.fcntl, "ioctl", lambda *_: bytes(20) + bytes([10, 1, 2, 3])
    )
    assert meeting.addresses() == ["10.1.2.3"]


@pytest.mark.parametrize("leads_to", ["127.0.1.1", "::1", None])
def test_a_host_whose_own_name_leads_to_nobody_else_is_named(monkeypatch, leads_to):
    def resolve(name, port):
        if leads_to is None:
            raise OSError("no such name")
        return [(0, 0, 0, "", (leads_to, 0))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with pytest.raises(BadInput, match="none on the host of rank 0; write the host"):
        sim.run(meeting.check_host_names, 2)
    leads_to = "10.0.0.1"
    sim.run(meeting.check_host_names, 2)


@pytest.mark.parametrize("rest", [0, -1])
def test_one_axis_takes_the_devices_that_remain(rest):
    axes = mesh(batch=rest, dim=1)
    assert dict(axes.shape) == {"batch": len(jax.devices()), "dim": 1}
    assert list(axes.devices.flat) == jax.devices()


@pytest.mark.parametrize(
    "axes, got",
    [
        ({"batch": 2, "dim": 1}, "batch=2 x dim=1"),
        ({"batch": 0, "dim": 2}, "batch=0 x dim=2"),
        ({"batch": 0, "dim": 0}, "batch=0 x dim=0"),
        ({"batch": -1, "dim": -1}, "batch=-1 x dim=-1"),
        ({"batch": -2, "dim": 0}, "batch=-2 x dim=0"),
    ],
)
def test_axes_that_do_not_fit_the_devices_are_named(axes, got):
    with pytest.raises(BadInput, match=f"mesh of all 1 devices, got {got}; pass axes"):
        mesh(**axes)


def test_virtual_ranks_have_no_devices_and_one_rank_needs_no_start():
    with pytest.raises(BadInput, match="expected real ranks .* got 2 virtual ranks"):
        sim.run(start, 2)
    sim.run(start, 1)
    assert not jax.distributed.is_initialized()
