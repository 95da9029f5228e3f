"""A plugin of pytest: a marked test is called on every virtual rank.

    @pytest.mark.ranks([1, 2, 3, 8], network="torus:2x4")
    def test_sum(comm):
        assert comm.allreduce(comm.rank) == sum(range(comm.size))

`comm` is COMM_WORLD of the rank, and the fixture `MPI` the module `dml.sim.MPI`. The
report of a failure names the rank; a deadlock fails with the calls that wait. Options
of the marker are those of `MPI.run`, a network by name, and faults as events such as
die:3@0.001.
"""

from typing import Any

import pytest

ARGUMENT = "virtual_ranks"  # parameter with the number of ranks


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "ranks(sizes, network=None, faults='', collectives='mpich', eager=None): call "
        "the test on every virtual rank, for one number of ranks or several",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    marker = metafunc.definition.get_closest_marker("ranks")
    if marker is None:
        return
    (sizes,) = marker.args or (1,)
    metafunc.fixturenames.append(ARGUMENT)
    chosen = [sizes] if isinstance(sizes, int) else [*sizes]
    metafunc.parametrize(ARGUMENT, chosen, ids=[f"ranks={size}" for size in chosen])


@pytest.fixture
def comm(request: pytest.FixtureRequest) -> Any:
    """COMM_WORLD of each rank of a test that is marked with `ranks`."""
    if request.node.get_closest_marker("ranks") is None:
        pytest.fail(
            "expected a test marked with @pytest.mark.ranks(N) for the fixture comm",
            pytrace=False,
        )


@pytest.fixture
def MPI() -> Any:
    """The module `dml.sim.MPI`."""
    from dml.sim import mpi

    return mpi


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Call a marked test on every rank."""
    marker = pyfuncitem.get_closest_marker("ranks")
    if marker is None:
        return None
    from dml.sim.events import events
    from dml.sim.mpi.running import run
    from dml.sim.networks.named import network
    from dml.sim.world import Deadlock

    options = dict(marker.kwargs)
    size: Any = pyfuncitem.callspec.params[ARGUMENT]
    text, faults = options.pop("network", None), options.pop("faults", "")
    names = pyfuncitem._fixtureinfo.argnames
    given = {name: pyfuncitem.funcargs[name] for name in names}

    def program(world: Any) -> None:
        own = {"comm": world} if "comm" in given else {}
        pyfuncitem.obj(**(given | own))

    links = network(text, size) if isinstance(text, str) else text
    try:
        run(program, size, links, events=events(faults), **options)
    except Deadlock as error:
        raise pytest.fail.Exception(str(error), pytrace=False) from None
    return True
