import jax
import pytest

from dml import sim
from dml.types import BadInput
from dml.wire.mesh.devices import coordinator_address, mesh, start

# One device here; meshes of 8, and of several processes, are in tests/strategies/glove
# and tests/mpi.


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


def test_virtual_ranks_have_no_devices():
    with pytest.raises(BadInput, match="expected real ranks .* got 2 virtual ones"):
        sim.run(start, 2)


def test_one_rank_alone_is_a_run_already():
    sim.run(start, 1)
    assert not jax.distributed.is_initialized()


def test_all_ranks_know_the_same_meeting_point():
    (point, *others) = sim.run(coordinator_address, 3)
    host, _, port = point.rpartition(":")
    assert host
    assert 0 < int(port) < 1 << 16
    assert others == [point, point]
