"""The load of other programs is that of all cores without this program's."""

import os
from types import SimpleNamespace

import pytest

from dml.runs import hardware

TICKS = os.sysconf("SC_CLK_TCK")


@pytest.fixture
def at(tmp_path, monkeypatch):
    """Return a function that sets the clock, own seconds, and those of the cores."""
    monkeypatch.setattr(hardware, "STAT", tmp_path / "stat")
    monkeypatch.setattr(os, "getloadavg", lambda: (6.0, 0, 0))

    def set_seconds(clock, own, user, idle=0, steal=0):
        fields = user, 0, 0, idle, 0, 0, 0, steal, 0, 0
        ticks = " ".join(str(TICKS * seconds) for seconds in fields)
        hardware.STAT.write_text(f"cpu  {ticks}\ncpu0 1\n")
        monkeypatch.setattr(os, "times", lambda: (own - 2, 0.5, 1.0, 0.5, 9.0))
        clocks = SimpleNamespace(perf_counter=lambda: clock)
        monkeypatch.setattr(hardware, "time", clocks)

    return set_seconds


def test_own_seconds_and_idle_cores_are_no_load(at):
    at(clock=100, own=3, user=50, idle=7)
    load = hardware.load_of_others()
    at(clock=120, own=33, user=80, idle=17)
    assert load() == 0
    at(clock=120, own=33, user=90, idle=17, steal=5)  # by another virtual machine
    assert load() == pytest.approx(15 / 20)


def test_without_proc_stat_the_load_is_the_average_before(at):
    at(clock=100, own=3, user=50)
    hardware.STAT.unlink()
    load = hardware.load_of_others()
    assert load() == 6
