import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from dml import sim
from dml.runs import counters, energy
from dml.runs.carbon import POUND, PRICES, dollars_per_hour, footprint, rent
from dml.runs.energy import (
    JOULES_PER_KWH,
    MAX_CORES,
    Consumption,
    Meter,
    Terms,
    total_consumption,
)
from dml.types import RankFailed

HOUR = 3600.0
HOST = Consumption(HOUR, 10.0, 0, 0, 0, 0, 0)
ESTIMATED = "CPU time x 10 W (estimated)"


def joules_of(spent):
    return spent["energy_kwh"] * JOULES_PER_KWH


def zone(root, name, label, micro):
    folder = root / name
    folder.mkdir(parents=True)
    for file, content in [("name", label), ("max_energy_range_uj", 100_000_000)]:
        (folder / file).write_text(f"{content}\n")
    (folder / "energy_uj").write_text(f"{micro}\n")
    return folder / "energy_uj"


@pytest.fixture
def host(tmp_path, monkeypatch):
    """Return a file of a RAPL counter, a function that sets busy ticks, a reading."""
    file = zone(tmp_path / "cap", "intel-rapl:0", "package-0", 5_000_000)
    stat, busy = tmp_path / "stat", counters.host_cpu_seconds

    def tick(ticks):
        stat.write_text(f"cpu  {ticks} 0 0 99999 5 0 0 7 0 0\ncpu0 1 2 3\n")

    tick(1000)
    begun = counters.read_counters(tmp_path / "cap", stat)
    monkeypatch.setattr(counters, "host_cpu_seconds", lambda: busy(stat))
    monkeypatch.setattr(counters, "process_cpu_seconds", lambda: 2.0)
    return file, tick, begun


@pytest.mark.parametrize(
    "watts, hours, kwh, pounds",
    [
        (517.66, 336, 275, 262),
        (12041.51, 79.2, 1507, 1438),
        (1515.43, 274_120, 656_347, 626_155),
    ],
)
def test_energy_and_emissions_are_as_printed(watts, hours, kwh, pounds):
    found = footprint(watts, hours, pue=1.58, intensity=0.954)
    assert (round(found.kwh), round(found.co2)) == (kwh, pounds)


def test_a_search_makes_the_tonnes_that_patterson_quotes_and_rent_is_by_the_hour():
    assert round(626_155 * POUND / 1e3) == 284
    assert round(rent(64, 79.2, 0.74)) == 3751
    assert dollars_per_hour("NVIDIA V100 SXM2") == PRICES["V100"].on_demand
    assert dollars_per_hour("unknown") is None


def test_hosts_add_up_and_a_host_counts_its_gpus_once():
    found = total_consumption(
        [HOST], [360.0], [4], Terms(pue=1.5, grid=0.4, core_price=0.05)
    )
    assert found["energy_kwh"] == pytest.approx(3600 / 3.6e6)
    assert found["co2_kg"] == pytest.approx(1e-3 * 1.5 * 0.4)
    assert found["cost_usd"] == pytest.approx(4 * 0.05)
    assert found["energy_source"] == ESTIMATED
    one = HOST._replace(
        joules_per_cpu_second=7.0, measured=1, gpu_joules=100.0, gpus=2, gpu_price=3.0
    )
    found = total_consumption([one, HOST], [10.0, 20.0], [1, 2], Terms(core_price=0.5))
    assert joules_of(found) == pytest.approx(7 * 10 + 100 + 10 * 20)
    assert found["cost_usd"] == pytest.approx(0.5 * 3 + 2 * 3.0)
    assert found["energy_source"] == f"{ESTIMATED} and NVML and RAPL"
    # ranks together take no more than their host did
    read = HOST._replace(joules_per_cpu_second=10.0, measured=1, joules=150.0)
    assert joules_of(total_consumption([read], [10.0], [1], Terms())) == 100
    assert joules_of(total_consumption([read], [20.0], [1], Terms())) == 150
    unlisted = HOST._replace(gpus=1, unlisted=1)
    assert total_consumption([unlisted], [1.0], [1], Terms())["cost_usd"] is None


def test_rapl_gives_each_process_its_part_of_cpu_time(host, monkeypatch):
    file, tick, begun = host
    meter = Meter(None, Terms(), begun)
    file.write_text("65000000")  # 60 J more
    # no tick since, but 2 CPU seconds before the counters' zero
    found = Meter(None, Terms(), begun).host_consumption()
    assert found.joules_per_cpu_second == pytest.approx(60 / 2)
    tick(1000 + 800)  # 8 CPU seconds
    assert meter.host_consumption().joules_per_cpu_second == pytest.approx(60 / 8)
    assert meter.host_consumption().joules == pytest.approx(60)
    assert meter.run_consumption()["energy_source"] == "RAPL"
    for seconds in (0.5, 2.0, 5.5):  # shares add up to the host's total
        monkeypatch.setattr(counters, "process_cpu_seconds", lambda n=seconds: n)
        found = Meter(None, Terms(), begun).run_consumption()
        assert joules_of(found) == pytest.approx(60 * seconds / 8)


def test_all_that_cores_do_is_busy_but_waiting_and_what_guests_took(tmp_path):
    place = tmp_path / "stat"
    place.write_text("cpu  100 20 3 99999 888 400 5000 777 60000 60000\ncpu0 1\n")
    ticks = counters.host_cpu_seconds(place) * os.sysconf("SC_CLK_TCK")
    assert ticks == 100 + 20 + 3 + 400 + 5000


def test_a_counter_that_comes_round_counts_on(host):
    file, _, begun = host
    meter = Meter(None, Terms(), begun)
    for micro in (95_000_000, 15_000_000, 14_000_000):  # round, and round again
        file.write_text(str(micro))
        meter.read_energy()
    assert meter.joules == pytest.approx(90 + 20 + 99)


def test_zones_are_packages_and_memory_that_may_be_read(tmp_path):
    package = zone(tmp_path, "intel-rapl:0", "package-0", 1)
    memory = zone(tmp_path, "intel-rapl:0:1", "dram", 2)
    zone(tmp_path, "intel-rapl:0:0", "core", 3)  # a part of its package
    zone(tmp_path, "intel-rapl:1", "psys", 4)  # has all packages in it
    zone(tmp_path, "intel-rapl:2", "package-1", 5).unlink()  # not to be read
    assert counters.read_zones(tmp_path) == {package: 1, memory: 2}


def test_without_counters_a_cpu_second_takes_the_stated_watts(tmp_path, monkeypatch):
    begun = counters.read_counters(tmp_path, tmp_path / "none")
    monkeypatch.setattr(counters, "process_cpu_seconds", lambda: 3.0)
    found = Meter(None, Terms(watts=20.0), begun).run_consumption()
    assert joules_of(found) == pytest.approx(60)
    assert found["energy_source"] == "CPU time x 20 W (estimated)"


def test_work_of_this_process_and_its_ended_children_counts():
    before = counters.process_cpu_seconds()
    burn = "import time\nwhile time.process_time() < 0.2: pass"
    subprocess.run([sys.executable, "-c", burn], check=True)
    child = counters.process_cpu_seconds() - before
    assert child >= 0.19
    start = time.process_time()
    while time.process_time() - start < 0.05:
        pass
    assert counters.process_cpu_seconds() - before >= child + 0.05


def test_cores_are_those_that_any_rank_may_use(monkeypatch):
    monkeypatch.setattr(counters, "own_cores", lambda: [3, MAX_CORES - 1])
    meter = Meter(None, Terms(core_price=1.0), energy.START)
    least = (time.monotonic() - energy.START.time) / HOUR
    cost = meter.run_consumption()["cost_usd"]
    most = (time.monotonic() - energy.START.time) / HOUR
    assert 2 * least * (1 - 1e-9) <= cost <= 2 * most * (1 + 1e-9)


def test_virtual_ranks_are_one_process():
    def program(comm):
        comm.platform.compute(100.0)
        with energy.meter(comm, Terms()) as meter:
            sent = comm.Wtime()
            found = meter.run_consumption()
            return comm.Wtime() - sent, joules_of(found) / 10

    least = counters.process_cpu_seconds()
    times, seconds = zip(*sim.run(program, 3), strict=True)
    assert times == (0.0, 0.0, 0.0)  # nothing is sent
    most = counters.process_cpu_seconds()
    assert least * (1 - 1e-9) <= max(seconds) <= most * (1 + 1e-9)


def test_consumption_is_that_of_the_ranks_that_take_part():
    def refuse(*_):
        raise RankFailed("rank 1 has died")

    platform = SimpleNamespace(virtual=False, hosts=lambda: [0, 0])
    comm = SimpleNamespace(rank=0, size=2, platform=platform, Allreduce=refuse)
    living = SimpleNamespace(Allreduce=lambda *_: None)
    with energy.meter(comm, Terms()) as meter, pytest.raises(RankFailed):
        meter.run_consumption()
    with energy.meter(comm, Terms(), collective=lambda call: call(living)) as meter:
        assert meter.run_consumption()["energy_kwh"] > 0


def test_a_meter_looks_now_and_then(host, monkeypatch):
    file, _, begun = host
    monkeypatch.setattr(energy, "READ_INTERVAL", 0.01)
    with energy.meter(None, Terms(), begun) as meter:
        file.write_text("6000000")
        while not meter.joules:
            time.sleep(0.01)
        assert meter.joules == pytest.approx(1)
        (looks,) = (
            one for one in threading.enumerate() if "read_periodically" in one.name
        )
    looks.join()


@pytest.fixture
def nvml(monkeypatch):
    """NVML of a host with three GPUs; each reading adds a joule to each of them."""
    readings = []
    nvml = SimpleNamespace(
        NVMLError=ZeroDivisionError,
        nvmlInit=lambda: readings.append(1),
        nvmlDeviceGetCount=lambda: 3,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetHandleByUUID={"GPU-b": 1}.get,
        nvmlDeviceGetTotalEnergyConsumption=lambda i: 1000 * (len(readings) + 10 * i),
        nvmlDeviceGetName=lambda i: "NVIDIA H100 80GB HBM3",
    )
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.setattr(counters, "DRIVER", Path("/"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return nvml


@pytest.mark.parametrize(
    "listed, number, joules",
    [(None, 3, 33), ("0,2", 2, 22), ("GPU-b", 1, 11), ("", 0, 0)],
)
def test_gpus_count_their_own_joules(nvml, listed, number, joules, monkeypatch):
    if listed is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", listed)
    found = counters.gpus()
    assert (found.number, found.joules) == (number, joules)
    took = Meter(None, Terms()).host_consumption()
    # of each, one joule since the meter was made
    assert took.gpus == took.gpu_joules == number


def test_gpus_have_their_listed_price_or_that_of_the_terms(nvml):
    assert Meter(None, Terms()).host_consumption().gpu_price == PRICES["H100"].on_demand
    took = Meter(None, Terms(gpu_price=0.0)).host_consumption()
    assert (took.gpu_price, took.unlisted) == (0.0, 0)
    nvml.nvmlDeviceGetName = lambda i: "unknown"
    assert Meter(None, Terms()).host_consumption().unlisted == 1


def test_a_driver_without_gpus_that_count_is_no_error(nvml, monkeypatch):
    nvml.nvmlDeviceGetTotalEnergyConsumption = lambda i: 1 / 0  # not supported
    assert counters.gpus() == counters.Gpus()
    monkeypatch.setitem(sys.modules, "pynvml", None)  # not installed
    assert counters.gpus() == counters.Gpus()
