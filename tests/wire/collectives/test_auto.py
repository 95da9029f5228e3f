"""`auto` on real ranks: measured once per size class, stored, and not counted."""

import json

import numpy as np
import pytest

from dml import sim
from dml.sim.networks.named import network
from dml.wire.collectives import AUTO, auto, rates, stored
from dml.wire.collectives.auto import chosen_allreduce, measure_choice, measured_choice
from dml.wire.collectives.rates import CANDIDATES
from dml.wire.comm import Metered
from dml.wire.comm.wrapper import Wrapper

NAMES = list(CANDIDATES)


@pytest.fixture
def file(tmp_path, monkeypatch):
    """Keep choices in a file of the test; virtual ranks measure like real ones."""
    monkeypatch.setenv("DML_DATA", str(tmp_path))
    monkeypatch.setattr(stored, "machine", lambda comm: f"test, {comm.size}")
    return tmp_path / "allreduces.json"


def choose(size, nbytes, registered=False):
    """Return the choice of all ranks, and the bytes that they counted."""

    def program(comm):
        counted = Metered(comm)
        return measured_choice(counted, nbytes, registered), counted.bytes_sent

    return set(sim.run(program, size))


@pytest.mark.parametrize("size, nbytes", [(2, 64), (4, 4096), (5, 1 << 20)])
@pytest.mark.parametrize("registered", [False, True])
def test_all_ranks_choose_the_fastest_without_counting(file, size, nbytes, registered):
    (choice,) = choose(size, nbytes, registered)
    fastest = set(
        sim.run(lambda comm: NAMES[measure_choice(comm, nbytes, registered)], size)
    )
    assert fastest == {choice[0]} and choice[1] == 0
    assert list(json.loads(file.read_text())[f"test, {size}"].values()) == [choice[0]]


def test_a_class_is_measured_once(file, monkeypatch):
    before = choose(3, 3000)
    monkeypatch.setattr(auto, "measure_choice", lambda *arguments: 1 / 0)
    assert choose(3, 2049) == choose(3, 4096) == before
    for other in ({"nbytes": 2048}, {"nbytes": 4097}):
        with pytest.raises(ZeroDivisionError):
            choose(3, **other)
    with pytest.raises(ZeroDivisionError):
        choose(3, 3000, registered=True)


def test_choices_of_other_machines_and_classes_are_kept(file):
    file.write_text(json.dumps({"another": {"plain, at most 1024 bytes": "ring"}}))
    choose(2, 4096), choose(2, 8192), choose(3, 8192)
    found = {key: len(value) for key, value in json.loads(file.read_text()).items()}
    assert found == {"another": 1, "test, 2": 2, "test, 3": 1}


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{",
        '{"test, 2": []}',
        '{"test, 2": {"plain, at most 4096 bytes": "gone"}}',
        '{"test, 2": {"plain, at most 4096 bytes": []}}',
    ],
)
def test_a_damaged_file_is_measured_again(file, text):
    file.write_text(text)
    ((name, _),) = choose(2, 4096)
    assert name in NAMES
    chosen = json.loads(file.read_text())["test, 2"]
    assert chosen["plain, at most 4096 bytes"] == name


def test_a_stored_choice_is_used(file):
    chosen = {"plain, at most 4096 bytes": "butterfly"}
    file.write_text(json.dumps({"test, 2": chosen}))
    assert choose(2, 4096) == {("butterfly", 0)}


def test_the_choice_among_all_is_stored_apart(file, monkeypatch):
    among, names = AUTO["auto_all"], list(AUTO["auto_all"].functions)
    slow = {name: among.functions[name] for name in names[:3]}
    monkeypatch.setattr(rates, "REPEATS", 1)
    few = among._replace(functions=slow)
    before = choose(3, 3000)
    ((name, sent),) = set(
        sim.run(lambda comm: (measured_choice(comm, 3000, False, few), 0), 3)
    )
    assert name in slow and choose(3, 3000) == before
    chosen = json.loads(file.read_text())["test, 3"]
    assert chosen["all: plain, at most 4096 bytes"] == name
    assert chosen["plain, at most 4096 bytes"] in NAMES


def test_all_are_compared_on_the_links_of_virtual_ranks():
    """By formulas halving-doubling is the fastest, on the links of a ring the ring."""
    net, buffer = network("ring:16", 16), np.zeros(1 << 18, np.float32)

    def program(comm):
        half = comm.Split(comm.rank % 2)
        return [
            chosen_allreduce(each, buffer, among)
            for each in (comm, half)
            for among in AUTO.values()
        ]

    (found,) = {tuple(names) for names in sim.run(program, 16, net)}
    assert found == ("halving_doubling", "ring", "halving_doubling", "ring")


def test_virtual_ranks_predict(file):
    sim.run(lambda comm: chosen_allreduce(comm, np.zeros(1024, np.float32)), 4)
    assert not file.exists()


def test_rates_are_measured_once_stored_and_those_of_the_network(file, monkeypatch):
    network, folder = sim.Uniform(2e-6, 1e-9, 3e-10), file.parent / "new"
    monkeypatch.setenv("DML_DATA", str(folder))

    def program(comm):
        real = Wrapper(comm)
        real.platform = comm.platform._replace(network=None)
        return rates.machine_rates(real), rates.machine_rates(real)

    (found, again), *others = sim.run(program, 4, network)
    assert others == [(found, found)] * 3 and again == found
    assert found[:3] == pytest.approx(network.rates[:3], rel=0.01)
    monkeypatch.setattr(rates, "measure", lambda comm: 1 / 0)
    assert sim.run(program, 4, network) == [(found, found)] * 4
    assert sim.run(program, 1) == [(rates.Rates(0.0, 0.0, 0.0),) * 2]
    (folder / "rates.json").write_text('{"test, 4": ["fast"]}')
    with pytest.raises(ZeroDivisionError):
        sim.run(program, 4, network)
