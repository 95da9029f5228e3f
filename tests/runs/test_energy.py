import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from dml import sim
from dml.runs import counters, energy
from dml.runs.carbon import PRICES, hourly
from dml.runs.energy import CORES, Meter, Terms, Took, summed

HOUR = 3600.0
HOST = Took(HOUR, 10.0, 0, 0, 0, 0, 0)


def zone(root, name, label, micro, most=262_143_328_850):
    folder = root / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "name").write_text(f"{label}\n")
    (folder / "energy_uj").write_text(f"{micro}\n")
    (folder / "max_energy_range_uj").write_text(f"{most}\n")
    return folder / "energy_uj"


def stat(path, ticks):
    path.write_text(f"cpu  {ticks} 0 0 99999 5 0 0 7 0 0\ncpu0 1 2 3\n")
    return path


@pytest.fixture
def host(tmp_path, monkeypatch):
    """A host with RAPL that is read: its counter and its busy ticks can be set."""
    file = zone(tmp_path / "cap", "intel-rapl:0", "package-0", 5_000_000)
    busy = stat(tmp_path / "stat", 1000)
    begun = counters.reading(tmp_path / "cap", busy)
    monkeypatch.setattr(counters, "busy", lambda: counters_busy(busy))
    monkeypatch.setattr(counters, "worked", lambda: 2.0)
    return file, busy, begun


counters_busy = counters.busy


def test_a_kwh_is_joules_and_co2_and_dollars_follow():
    found = summed([HOST], [360.0], [4], Terms(pue=1.5, grid=0.4, core_price=0.05))
    assert found["energy_kwh"] == pytest.approx(3600 / 3.6e6)
    assert found["co2_kg"] == pytest.approx(1e-3 * 1.5 * 0.4)
    assert found["cost_usd"] == pytest.approx(4 * 0.05)
    assert found["energy_source"] == "CPU time x 10 W (estimated)"


def test_hosts_add_up_and_a_host_counts_its_gpus_once():
    one = HOST._replace(rate=7.0, read=1, gpu_joules=100.0, gpus=2, gpu_price=3.0)
    found = summed([one, HOST], [10.0, 20.0], [1, 2], Terms(core_price=0.5))
    assert found["energy_kwh"] * 3.6e6 == pytest.approx(7 * 10 + 100 + 10 * 20)
    assert found["cost_usd"] == pytest.approx(0.5 * 3 + 2 * 3.0)
    assert found["energy_source"] == "CPU time x 10 W (estimated) and NVML and RAPL"


def test_ranks_together_take_no_more_than_their_host_did():
    read = HOST._replace(rate=10.0, read=1, joules=150.0)
    for seconds, joules in ((10.0, 100), (20.0, 150)):
        found = summed([read], [seconds], [1], Terms())
        assert found["energy_kwh"] * 3.6e6 == pytest.approx(joules)


def test_a_gpu_that_is_not_listed_has_no_price():
    one = HOST._replace(gpus=1, unlisted=1)
    assert summed([one], [1.0], [1], Terms())["cost_usd"] is None


def test_rapl_gives_a_run_its_part_of_cpu_time(host):
    file, busy, begun = host
    meter = Meter(None, Terms(), begun)
    file.write_text("65000000")  # 60 J more
    stat(busy, 1000 + 800)  # 8 CPU seconds, 2 of them ours
    assert meter.took().rate == pytest.approx(60 / 8)
    assert meter.took().joules == pytest.approx(60)
    found = meter.spent()
    assert found["energy_kwh"] * 3.6e6 == pytest.approx(60 * 2 / 8)
    assert found["energy_source"] == "RAPL"


def test_shares_of_processes_add_up_to_their_hosts_total(host, monkeypatch):
    file, busy, begun = host
    file.write_text("65000000")
    stat(busy, 1000 + 800)
    shares = []
    for seconds in (0.5, 2.0, 5.5):  # all that worked
        monkeypatch.setattr(counters, "worked", lambda seconds=seconds: seconds)
        shares.append(Meter(None, Terms(), begun).spent()["energy_kwh"] * 3.6e6)
    assert sum(shares) == pytest.approx(60)


def test_work_before_the_counters_zero_makes_no_rate_of_nothing(host):
    file, busy, begun = host
    file.write_text("65000000")  # no tick since, but 2 CPU seconds of ours
    assert Meter(None, Terms(), begun).took().rate == pytest.approx(60 / 2)


def test_all_that_cores_do_is_busy_but_waiting_and_what_guests_took(tmp_path):
    place = tmp_path / "stat"
    place.write_text("cpu  100 20 3 99999 888 400 5000 777 60000 60000\ncpu0 1\n")
    assert counters_busy(place) * os.sysconf("SC_CLK_TCK") == 100 + 20 + 3 + 400 + 5000


def test_a_counter_that_comes_round_counts_on(host, tmp_path):
    file, busy, begun = host
    file.with_name("max_energy_range_uj").write_text("100000000")
    meter = Meter(None, Terms(), begun)
    for micro in (95_000_000, 15_000_000, 14_000_000):  # round, and round again
        file.write_text(str(micro))
        meter.look()
    assert meter.joules == pytest.approx(90 + 20 + 99)


def test_zones_are_packages_and_memory_that_may_be_read(tmp_path):
    package = zone(tmp_path, "intel-rapl:0", "package-0", 1)
    memory = zone(tmp_path, "intel-rapl:0:1", "dram", 2)
    zone(tmp_path, "intel-rapl:0:0", "core", 3)  # a part of its package
    zone(tmp_path, "intel-rapl:1", "psys", 4)  # has all packages in it
    (tmp_path / "intel-rapl:2").mkdir()  # not to be read
    (tmp_path / "intel-rapl:2/name").write_text("package-1\n")
    assert counters.zones(tmp_path) == {package: 1, memory: 2}


def test_without_counters_a_cpu_second_takes_the_stated_watts(tmp_path, monkeypatch):
    begun = counters.reading(tmp_path, tmp_path / "none")
    monkeypatch.setattr(counters, "worked", lambda: 3.0)
    found = Meter(None, Terms(watts=20.0), begun).spent()
    assert found["energy_kwh"] * 3.6e6 == pytest.approx(60)
    assert found["energy_source"] == "CPU time x 20 W (estimated)"


def test_work_of_this_process_and_its_ended_children_counts():
    before = counters.worked()
    burn = "import time\nwhile time.process_time() < 0.2: pass"
    subprocess.run([sys.executable, "-c", burn], check=True)
    child = counters.worked() - before
    assert child >= 0.19
    start = time.process_time()
    while time.process_time() - start < 0.05:
        pass
    assert counters.worked() - before >= child + 0.05


def test_cores_are_those_that_any_rank_may_use(monkeypatch):
    monkeypatch.setattr(counters, "own_cores", lambda: [3, CORES - 1])
    meter = Meter(None, Terms(core_price=1.0), energy.BEGUN)
    hours = (time.monotonic() - energy.BEGUN.time) / HOUR
    assert meter.spent()["cost_usd"] == pytest.approx(2 * hours, rel=0.1)


def test_virtual_ranks_are_one_process():
    def program(comm):
        comm.platform.compute(100.0)
        with energy.meter(comm, Terms()) as meter:
            sent = comm.Wtime()
            found = meter.spent()
            return comm.Wtime() - sent, found["energy_kwh"] * 3.6e6 / 10

    times, seconds = zip(*sim.run(program, 3), strict=True)
    assert times == (0.0, 0.0, 0.0)  # nothing is sent
    assert max(seconds) == pytest.approx(counters.worked(), rel=0.1)


def test_a_meter_looks_now_and_then(host, monkeypatch):
    file, busy, begun = host
    monkeypatch.setattr(energy, "LOOK", 0.01)
    with energy.meter(None, Terms(), begun) as meter:
        file.write_text("6000000")
        patience = time.monotonic() + 5
        while not meter.joules and time.monotonic() < patience:
            time.sleep(0.01)
        assert meter.joules == pytest.approx(1)
        (looks,) = (one for one in threading.enumerate() if "looks" in one.name)
    looks.join(5)
    assert not looks.is_alive()


class FakeNvml:
    """NVML of a host with three GPUs; a look adds a joule to each."""

    NVMLError = type("NVMLError", (Exception,), {})

    def __init__(self):
        self.looks = 0

    def nvmlInit(self):
        self.looks += 1

    def nvmlDeviceGetCount(self):
        return 3

    def nvmlDeviceGetHandleByIndex(self, i):
        return i

    def nvmlDeviceGetHandleByUUID(self, name):
        return {"GPU-b": 1}[name]

    def nvmlDeviceGetTotalEnergyConsumption(self, i):
        return 1000 * (self.looks + 10 * i)

    def nvmlDeviceGetName(self, i):
        return "NVIDIA H100 80GB HBM3"


@pytest.mark.parametrize(
    ("asked", "number", "joules"),
    [(None, 3, 33), ("0,2", 2, 22), ("GPU-b", 1, 11), ("", 0, 0)],
)
def test_gpus_count_their_own_joules(asked, number, joules, monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())
    monkeypatch.setattr(counters, "DRIVER", Path("/"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if asked is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", asked)
    found = counters.gpus()
    assert (found.number, found.joules) == (number, joules)
    took = Meter(None, Terms()).took()
    assert took.gpu_joules == number  # of each, one joule since the meter was made
    assert took.gpus == number


def test_gpus_have_their_listed_price_or_the_asked(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())
    monkeypatch.setattr(counters, "DRIVER", Path("/"))
    assert Meter(None, Terms()).took().gpu_price == PRICES["H100"].on_demand
    asked = Meter(None, Terms(gpu_price=0.0)).took()
    assert (asked.gpu_price, asked.unlisted) == (0.0, 0)
    monkeypatch.setattr(FakeNvml, "nvmlDeviceGetName", lambda self, i: "Unheard of")
    assert Meter(None, Terms()).took().unlisted == 1


def test_a_driver_without_gpus_that_count_is_no_error(monkeypatch):
    broken = FakeNvml()

    def fail(one):
        raise broken.NVMLError("not supported")

    broken.nvmlDeviceGetTotalEnergyConsumption = fail
    monkeypatch.setitem(sys.modules, "pynvml", broken)
    monkeypatch.setattr(counters, "DRIVER", Path("/"))
    assert counters.gpus() == counters.Gpus()
    monkeypatch.setitem(sys.modules, "pynvml", None)  # not installed
    assert counters.gpus() == counters.Gpus()


def test_every_price_has_a_date():
    for name, price in PRICES.items():
        assert 0 < price.spot < price.on_demand
        assert any(year in price.listed for year in ("2019", "2023"))
        assert hourly(f"NVIDIA {name} something") == price.on_demand
    assert hourly("Unheard of") is None
