"""crossover.py: predictions beside virtual networks, bandwidths, setups, bad input."""

import crossover
import numpy as np
import pytest
from studies.compression import crossovers, predicted, speeds
from studies.compression.predicted import Network

from dml import sim
from dml.types import BadInput
from dml.wire.collectives import ALLREDUCE
from dml.wire.comm.buffers import layout
from dml.wire.costs import allreduce, codes
from dml.wire.costs.allreduce import Rates
from dml.wire.reducers.names import reducer
from dml.wire.reducers.transports import TRANSPORTS
from tests.experiments.run_folder import read_rows

SIDE = 48  # 2 matrices have 4608 elements: equal chunks for 2, 3, 4 and 6 ranks
RATES = Rates(alpha=2e-6, beta=8e-9 / 5, gamma=1e-10)
NAMES = ("sign+feedback", "qsgd:4", "top_k:0.01+feedback", "natural")
SUMS = ("random_k:0.0625+feedback", "power_sgd:2+feedback")
SUMS += ("power_sgd_alternating:2",)
SMALL = ["--matrices=1", "--repeats=1", "--codes=sign+feedback,power_sgd:2+feedback"]


@pytest.fixture
def grads(monkeypatch):
    monkeypatch.setattr(speeds, "SIDE", SIDE)
    return speeds.matrices(2, 0)


def virtual_seconds(call, size, rates):
    """Return the seconds of call(comm) on the slowest of virtual ranks."""

    def program(comm):
        start = comm.Wtime()
        call(comm)
        return comm.Wtime() - start

    return max(sim.run(program, size, sim.Uniform(*rates[:3])))


def exact_sum(length, size, rates):
    """Return the function (comm) of the fastest all-reduce."""
    reduce = fastest(allreduce.Job(size, length), rates)
    values = np.ones(length, np.float32)
    return lambda comm: reduce(comm, values.copy())


def fastest(job, rates):
    return ALLREDUCE[allreduce.choose(job, rates, predicted.EXACT)]


def coded_sum(speed, grads, size, rates):
    """Return the function (comm) of the fastest sum of codes."""
    values = np.concatenate([grad.reshape(-1) for grad in grads.values()])
    if speed.codec:
        job = codes.Job(size, len(values), speed.codec.nbytes, encode=0, decode=0)
        usable = ("gather",) if speed.codec.sparse else ("gather", "scatter")
        transport = TRANSPORTS[codes.choose(job, rates, usable)]
        return lambda comm: transport(speed.codec, comm, values.copy(), None, 0)
    job = allreduce.Job(size, speed.lengths[0])
    made = reducer(speed.name, fastest(job, rates))
    state = made.init(layout(grads))
    return lambda comm: made.reduce(comm, values.copy(), state)


@pytest.mark.parametrize("size", (2, 3, 4, 6))
@pytest.mark.parametrize("name", (*NAMES, *SUMS))
def test_predicted_seconds_are_those_of_the_virtual_network(name, size, grads):
    speed = speeds.measure(name, grads, 1)._replace(encode=0, decode=0)
    call = coded_sum(speed, grads, size, RATES)
    expected = predicted.coded_seconds(speed, size, RATES)
    assert virtual_seconds(call, size, RATES) == pytest.approx(expected)


@pytest.mark.parametrize("size", (2, 4, 6))
@pytest.mark.parametrize(
    "name", ("sign+feedback", "top_k:0.01", "power_sgd:2+feedback")
)
def test_a_code_is_faster_below_the_crossover_and_slower_above(name, size, grads):
    speed = speeds.measure(name, grads, 1)._replace(encode=1e-5, decode=0)
    network = Network(size, RATES.alpha, RATES.gamma)
    gbps = predicted.pays_below(speed, network, (0.1, 400))
    assert 0.1 < gbps < 400
    for factor, faster in ((0.9, True), (1.1, False)):
        rates = RATES._replace(beta=8e-9 / (factor * gbps))
        coded = coded_sum(speed, grads, size, rates)
        exact = exact_sum(speed.length, size, rates)
        seconds = virtual_seconds(coded, size, rates) + speed.encode
        assert (seconds < virtual_seconds(exact, size, rates)) == faster


def test_slow_codes_pay_nowhere_and_free_ones_everywhere(grads):
    speed = speeds.measure("sign", grads, 1)
    network, interval = Network(4, 0.0, 0.0), (0.1, 400.0)
    slow = speed._replace(encode=10.0)
    assert predicted.pays_below(slow, network, interval) is None
    free = speed._replace(encode=0.0, decode=0.0)
    assert predicted.pays_below(free, network, interval) == pytest.approx(400)
    # exact sums are sent during a long backward pass
    hidden = network._replace(gradient=10.0)
    assert predicted.pays_below(free, hidden, interval) is None


def test_rows_have_bytes_crossovers_and_setups(tmp_path):
    argv = ["--ranks=2,8", "--gbps=0.1,100", "--examples=1,64"]
    summary = crossover.main(["crossover.py", f"--out={tmp_path}", *SMALL, *argv])
    rows = read_rows(tmp_path)
    measured = {row["code"]: row for row in rows if row["table"] == "code"}
    length = speeds.SIDE**2
    assert measured["sign+feedback"]["nbytes"] == 4 + length // 8
    assert measured["power_sgd:2+feedback"]["nbytes"] == 4 * 2 * 2 * speeds.SIDE
    found = [row for row in rows if row["table"] == "crossover"]
    assert [row["examples"] for row in found] == [0, 0, 1, 1, 64, 64]
    updates = [row for row in found if row["examples"]]
    assert summary["setups"] == 2 * 2 * 2 * 2
    assert summary["paying"] == sum(sum(row["paying"]) for row in updates)
    for row in found:
        for gbps, size in zip(row["pays_below"], row["ranks"], strict=True):
            assert gbps is None or 0.1 <= gbps <= 400, size
    assert (tmp_path / "crossover.svg").exists()


@pytest.mark.parametrize(
    "alone, updates, limits",
    [
        ([3.0, 20.0], [0.5, None], (0.1, 100)),
        ([None, None], [None, None], (0.1, 1000)),  # as on one rank
    ],
)
def test_the_figure_has_the_decades_of_its_curves(
    tmp_path, monkeypatch, alone, updates, limits
):
    def keep(path, panels, log, within):
        assert [panel.title for panel in panels] == ["sum alone", "4 examples per rank"]
        drawn.append(within)

    drawn = []
    monkeypatch.setattr(crossovers.figures, "panels", keep)
    row = {"table": "crossover", "code": "sign", "ranks": [2, 8]}
    found = {0: alone, 1: [None, None], 4: updates, 16: [None, None]}
    rows = [row | {"examples": n, "pays_below": gbps} for n, gbps in found.items()]
    crossovers.draw(tmp_path, rows)
    assert drawn == [limits]


@pytest.mark.parametrize(
    "flag, message",
    [
        ("--codes=exact", "expected codes of qsgd, .* got 'exact'; correct --codes"),
        ("--codes=vote", "expected codes of qsgd, .* got 'vote'"),
        ("--codes=top_k:7", r"expected a fraction in \(0, 1\]"),
        ("--codes=power_sgd:900", "expected a matrix of more than"),
        ("--gbps=0,1", "expected numbers above 0 in --gbps"),
        ("--ranks=0", "expected .* --ranks"),
    ],
)
def test_bad_input_is_refused_before_any_measurement(tmp_path, flag, message):
    with pytest.raises(BadInput, match=message):
        crossover.main(["crossover.py", f"--out={tmp_path / 'out'}", *SMALL, flag])
    assert not (tmp_path / "out").exists()
