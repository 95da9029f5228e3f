"""The load of other programs is that of the cores less this program's."""

import os
from types import SimpleNamespace

import pytest

from dml.runs import hardware

TICKS = os.sysconf("SC_CLK_TCK")


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Return a machine whose seconds a test sets: user, idle, own, clock."""
    now = SimpleNamespace(user=50.0, idle=7.0, steal=0.0, own=3.0, clock=100.0)
    stat = tmp_path / "stat"

    def times():
        fields = now.user, 0, 0, now.idle, 0, 0, 0, now.steal, 0, 0
        stat.write_text(
            f"cpu  {' '.join(str(int(TICKS * s)) for s in fields)}\ncpu0 1\n"
        )
        return now.own - 2, 0.5, 1.0, 0.5, 9.0

    monkeypatch.setattr(hardware, "STAT", stat)
    monkeypatch.setattr(hardware, "os", SimpleNamespace(**vars(os)))
    monkeypatch.setattr(hardware.os, "times", times)
    monkeypatch.setattr(hardware.os, "getloadavg", lambda: (6.0, 0, 0))
    monkeypatch.setattr(
        hardware, "time", SimpleNamespace(perf_counter=lambda: now.clock)
    )
    return now


def test_own_seconds_and_idle_cores_are_no_load(machine):
    load = hardware.load_of_others()
    machine.clock += 20
    machine.user, machine.own, machine.idle = 80.0, 33.0, 17.0
    assert load() == 0
    machine.user += 10
    machine.steal += 5  # by another virtual machine
    assert load() == pytest.approx(15 / 20)


def test_without_proc_stat_the_load_is_the_average_before(machine, monkeypatch):
    monkeypatch.setattr(hardware, "STAT", hardware.Path("no such file"))
    load = hardware.load_of_others()
    machine.clock += 20
    assert load() == 6
