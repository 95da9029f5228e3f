"""Pages of --watch: what their runs recorded agrees with formulas and rules."""

import json
import re

import numpy as np
import pytest
import server
from lab.watching import Recording
from studies.averaging import film as gossip_film
from studies.elastic import film as elastic_film
from studies.elastic.real import Kill
from studies.pipeline import film as pipeline_film
from studies.pipeline.virtual import Layers, completion_time
from studies.shared_memory import film as memory_film

from dml import sim
from dml.wire.plans.averaging.graphs import topology
from dml.wire.plans.averaging.mixing import matrix
from dml.wire.plans.pipeline.facts import in_flight
from dml.wire.plans.pipeline.schedules import SCHEDULES, make


def data(path):
    """Return the data of a page."""
    page = path.read_text()
    return json.loads(re.search(r'type="application/json">(.*?)</script>', page)[1])


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_pipeline_stores_the_activations_of_its_schedule(name, tmp_path):
    rounds = {"interleaved": 2, "zb_v": 2}.get(name, 1)
    schedule = make(name, 4, 8, rounds)
    layers = Layers([1e-3] * schedule.parts, 1000, "0,0,0")
    pipeline_film.write(tmp_path / "a.html", name, schedule, layers)
    found = data(tmp_path / "a.html")
    stored = np.zeros(4, int)
    for stage, _, values in found["states"]:
        busy = sum(0 < value < pipeline_film.COMPLETE for value in values)
        stored[stage] = max(stored[stage], busy)
    assert stored.tolist() == in_flight(schedule).tolist()
    ends = {stage: values for stage, _, values in found["states"]}
    assert all(set(values) == {pipeline_film.COMPLETE} for values in ends.values())
    seconds = completion_time(schedule, layers.seconds, layers)
    assert found["seconds"] == pytest.approx(seconds)
    computed = sum(
        one[3] - one[2] for one in found["phases"] if one[1] in found["colours"]
    )
    assert computed * found["seconds"] == pytest.approx(
        8 * sum(layers.seconds), rel=1e-4
    )


@pytest.mark.parametrize("name", ["ring", "one_peer_exponential", "torus:2x4"])
def test_weights_of_gossip_are_products_of_mixing_matrices(name, tmp_path):
    gossip_film.write(tmp_path / "a.html", name, 8)
    found, graph = data(tmp_path / "a.html"), topology(name, 8)
    rows = [[v for rank, _, v in found["states"] if rank == r] for r in range(8)]
    weights, close = np.eye(8), []
    for t, shown in enumerate(zip(*rows, strict=True)):
        assert np.array_equal(shown, gossip_film.percent(weights))
        close.append(np.abs(8 * weights - 1).max() < gossip_film.CLOSE)
        weights = matrix(graph, t) @ weights
    assert close == [False] * t + [True]  # no round more than is needed


def lags(out, *options):
    """Return by how many clocks the slowest worker was behind each reader."""
    server.main(
        [
            *("server", *options),
            *("--simulate=6", "--servers=1", "--clocks=12", "--batch=60"),
            *("--problem=generated", "--watch", f"--out={out}"),
            "--straggle=shifted_exponential:1,2*1,1,1,1,0.5,1",
        ]
    )
    states = data(out / "watch.html")["states"]
    assert [values for rank, _, values in states if rank == 5][-1] == [12] * 5
    return [values[rank] - min(values) for rank, _, values in states if rank < 5]


def test_reads_from_servers_keep_the_bound_of_staleness(tmp_path):
    ssp = "--consistency=ssp", "--staleness=2"
    assert max(lags(tmp_path / "bsp", "--consistency=bsp")) == 0
    assert max(lags(tmp_path / "ssp", *ssp)) == 2
    assert max(lags(tmp_path / "async", "--consistency=async")) > 2


def visited(policy, workers):
    """Return the memory after a run of a policy."""
    memory = memory_film.Memory(workers, Recording(workers + 1))
    visits = [memory_film.draw_example(k) for k in range(memory_film.EXAMPLES)]
    sim.run(lambda comm: memory_film.program(comm, policy, memory, visits), workers)
    times = [state.time for state in memory.states]
    assert times == sorted(times)
    assert memory.writes.sum() == memory_film.EXAMPLES * memory_film.NONZEROS
    return memory


def test_only_lock_free_workers_lose_changes():
    pytest.importorskip("mpi4py")
    memories = {policy: visited(policy, 6) for policy in memory_film.POLICIES}
    lost = {policy: memory.lost for policy, memory in memories.items()}
    conflicts = {policy: memory.conflicts for policy, memory in memories.items()}
    assert lost.pop("lock-free") and not any(lost.values())
    assert conflicts["lock-free"] and conflicts["round robin"]
    assert not conflicts["locked"] and not conflicts["CYCLADES"]
    one = visited("lock-free", 1)
    assert memories["CYCLADES"].w.tobytes() == one.w.tobytes()


def test_survivors_divide_the_shards_of_a_dead_rank(tmp_path):
    page, death = tmp_path / "a.html", 2e-4
    assert elastic_film.write(page, 5, 1, [Kill(death, 2)]) == 1
    found = data(page)
    ((rank, _, died, _),) = (one for one in found["phases"] if one[1] == "dead")
    assert rank == 2
    recoveries = [one for one in found["phases"] if one[1] == "recovery"]
    assert sorted(one[0] for one in recoveries) == [0, 1, 3, 4]
    recovered = max(one[3] for one in recoveries)
    later = [one for one in found["messages"] if one[2] > recovered]
    assert {one[0] for one in later} == {one[1] for one in later} == {0, 1, 3, 4}
    assert not [one for one in found["messages"] if one[0] == 2 and one[2] > died]
    committed = {r: values for r, _, values in found["states"] if r != 2}
    shards = np.array(list(committed.values())) == elastic_film.COMMITTED
    assert shards.sum(axis=0).tolist() == [1] * elastic_film.SHARDS


@pytest.mark.parametrize("deaths", [[], [Kill(1.0, 0)]])
def test_without_deaths_before_the_end_nothing_is_recovered(deaths, tmp_path):
    assert elastic_film.write(tmp_path / "a.html", 3, 1, deaths) == 0
    phases = {one[1] for one in data(tmp_path / "a.html")["phases"]}
    assert not phases & {"recovery", "dead"}
