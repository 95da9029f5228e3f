import numpy as np
import pytest
import topology
from studies.topology import allocations
from studies.topology import report as topology_report
from studies.topology import rows as topology_rows

from dml import sim
from dml.sim.networks.named import network
from dml.types import BadInput
from dml.wire.collectives import ALLREDUCE
from dml.wire.costs import allreduce as cost
from dml.wire.costs.allreduce import Job
from dml.wire.plans.schedules import SCHEDULES
from tests.experiments.run_folder import check_folder, read_rows
from tests.wire.test_algorithms import running


def run(out, *argv):
    small = ["--p=16", "--workers=2"]
    return topology.main(["topology.py", f"--out={out}", *small, *argv])


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run on 16 ranks: its folder, its summary, its rows by table."""
    out = tmp_path_factory.mktemp("run")
    summary = run(out, "--sizes=64B,64KB,1MB", "--group=4x2")
    rows = read_rows(out)
    tables = {
        name: [row for row in rows if row["table"] == name]
        for name in topology_report.TABLES
    }
    return out, summary, tables


def test_every_network_size_and_allreduce_is_timed(made):
    out, summary, tables = made
    race = tables["race"]
    assert len(race) == 6 * 3
    for row in race:
        took = [row[f"{name}_seconds"] for name in topology_rows.COMPARED]
        assert 0 < row["bound_seconds"] < row["seconds"]
        assert row["share"] == row["bound_seconds"] / row["seconds"]
        assert row["seconds"] == min(took) > 0
        assert row["exact"]
        assert row["lead"] >= 1
        for name in ("star", "tree", "ring", "halving_doubling"):
            assert row[f"{name}_words"] == 2 * 15 * row["bytes"] // 4
    check_folder(out, summary, "topology.svg", "topology.png")


def test_on_the_uniform_network_times_are_those_of_the_cost_model(made):
    rates = cost.Rates(*sim.Uniform()[:3])
    for row in made[2]["race"]:
        if row["network"] == "uniform":
            job = cost.Job(16, row["bytes"] // 4, groups=(4,) * 4, hosts=False)
            job = job._replace(further=(((2, 2), False),))
            for name in SCHEDULES:
                assert row[f"{name}_seconds"] == pytest.approx(
                    cost.seconds(name, job, rates), rel=1e-9
                )


def test_an_own_allreduce_runs_on_the_virtual_ranks(tmp_path):
    """It takes the time, and sends the words, of the rounds of its schedule."""
    own = "dml.wire.collectives.butterfly:butterfly_allreduce"
    names = f"--algorithms=butterfly,{own}"
    run(tmp_path, "--networks=1e-6,1e-9,1e-10,hosts:2x8", "--sizes=64B,64KB", names)
    rows = [row for row in read_rows(tmp_path) if row["table"] == "race"]
    assert len(rows) == 4
    for row in rows:
        assert row[f"{own}_words"] == row["butterfly_words"]
        if row["network"][0] == "1" or row["bytes"] == 64:  # one segment
            assert row[f"{own}_seconds"] == pytest.approx(
                row["butterfly_seconds"], rel=1e-9
            )


def test_a_row_of_a_shared_network_is_what_its_running_ranks_take(made):
    for row in made[2]["race"]:
        if row["network"] != "torus" or row["bytes"] > 1 << 16:
            continue
        for name in ("tree", "halving_doubling", "ring"):

            def program(comm, name=name, length=row["bytes"] // 4):
                ALLREDUCE[name](comm, np.zeros(length, np.float32))
                return comm.Wtime()

            took = max(sim.run(program, 16, network("torus", 16)))
            assert row[f"{name}_seconds"] == pytest.approx(took, rel=1e-9)


def test_slim_fly_is_compared_with_the_networks_that_have_links(made):
    _, summary, tables = made
    ports = {row["network"]: row for row in tables["ports"]}
    assert set(ports) == {"hosts", "torus", "fat_tree", "dragonfly", "slim_fly"}
    assert ports["slim_fly"]["diameter"] == 2
    assert ports["slim_fly"]["few_ratio"] == ports["slim_fly"]["many_ratio"] == 1
    for row in ports.values():
        assert row["cost_per_rank"] == row["cost"] / row["ranks"]
        assert row["ranks"] >= 16
        assert summary[f"many_ratio_{row['network']}_16"] == row["many_ratio"]


def test_byteps_takes_its_papers_time_and_one_stage_more(made):
    _, summary, tables = made
    assert [row["k"] for row in tables["byteps"]] == [0, 1, 2]
    for row in tables["byteps"]:
        ratio = row["bandwidth_seconds"] / row["paper_seconds"]
        assert ratio == pytest.approx(row["drained"], rel=1e-9)
        assert summary[f"byteps_{row['k']}"] == ratio
        shares = 2 * row["worker_share"] + row["k"] * row["spare_share"]
        assert shares == pytest.approx(1)


@pytest.mark.parametrize("text", ("hosts", "torus", "fat_tree", "slim_fly"))
def test_what_repeats_is_extrapolated_to_three_in_a_hundred(text, monkeypatch):
    net = network(text, 128)
    for nbytes in (512, 1 << 18):
        times = []
        for most in (10**9, 0):
            monkeypatch.setattr(topology_rows, "MAX_MESSAGES", most)
            rounds = list(topology_rows.schedule("ring", net, 128, nbytes // 4, [0]))
            times.append(topology_rows.seconds(rounds, net, 128))
        (whole, exact), (guess, known) = times
        assert (exact, known) == (True, False)
        assert guess == pytest.approx(whole, rel=0.03)


def test_sizes_are_chosen_so_that_every_rank_has_a_word_of_each_chunk(tmp_path):
    flags = ["--networks=uniform", "--algorithms=ring,hierarchical", "--p=3,12"]
    summary = run(tmp_path, *flags)
    sizes = [int(key.split("_")[-1]) for key in summary if key.startswith("best_")]
    assert sizes[0] == 12
    assert 48 in sizes
    assert max(sizes) <= 256 << 20


def test_bytes_between_groups_are_those_of_the_messages(tmp_path):
    """Counted in the messages of running ranks, on the places of the same seeds."""
    flags = ["--networks=dragonfly:2,uniform", "--sizes=1KB", "--allocations=3"]
    summary = run(tmp_path, *flags, "--algorithms=swing,bine,ring")
    rows = [row for row in read_rows(tmp_path) if row["table"] == "allocations"]
    assert [row["algorithm"] for row in rows] == ["swing", "bine", "ring"]
    assert [row["base"] for row in rows] == [
        "halving_doubling",
        "butterfly",
        "halving_doubling",
    ]
    net = network("dragonfly:2", 16)
    sent = {name: [] for name in ("swing", "halving_doubling")}
    for seed in range(3):
        job = allocations.one_job(net, 16, seed)
        group = job.group(np.arange(16))
        for name, counts in sent.items():
            _, _, messages = running(
                ALLREDUCE[name], Job(16, 256, registered=False), job
            )
            counts.append(
                sum(
                    nbytes
                    for rank, each in enumerate(messages)
                    for dest, nbytes in each
                    if group[rank] != group[dest]
                )
            )
    saved = [1 - a / b for a, b in zip(*sent.values(), strict=True)]
    assert rows[0]["global_bytes"] == np.median(sent["swing"])
    assert rows[0]["saved"] == pytest.approx(np.median(saved))
    assert rows[0]["most_saved"] == pytest.approx(max(saved))
    assert rows[0]["worse"] == np.mean(np.array(saved) < 0)
    assert summary["saved_swing_dragonfly:2_16_1024"] == rows[0]["saved"]


def test_jobs_need_a_network_with_groups(tmp_path):
    with pytest.raises(BadInput, match="expected a network with groups"):
        run(tmp_path, "--networks=torus", "--allocations=1")


def test_trees_are_packed_for_the_network(tmp_path):
    """Their time is close to the bound; α and γ are not a part of it."""
    flags = ["--networks=uniform,torus:4x4", "--sizes=16MB"]
    run(tmp_path, *flags, "--algorithms=tree,optimal,in_network")
    rows = [row for row in read_rows(tmp_path) if row["table"] == "race"]
    assert [row["network"] for row in rows] == ["uniform", "torus:4x4"]
    for row in rows:
        assert row["optimal_words"] == 2 * 15 * (16 << 20) // 4
        assert (row["best"], row["next"]) == ("in_network", "optimal")
        assert row["in_network_words"] >= 2 * 16 * (16 << 20) // 4
        assert 0.8 < row["share"] < 1
