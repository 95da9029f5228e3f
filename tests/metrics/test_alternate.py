"""Functions in turns: their order, the calls that are not timed, and the seconds."""

from dml.metrics import alternate as module
from dml.metrics.alternate import alternate


def test_functions_are_called_in_turns_and_the_first_calls_are_not_timed(monkeypatch):
    log, clock = [], iter(range(0, 1000, 3))
    monkeypatch.setattr(module, "perf_counter", lambda: next(clock))
    calls = {name: lambda name=name: log.append(name) for name in "ab"}
    seconds = alternate(
        calls, 2, before=lambda name, timed: log.append((name, bool(timed)))
    )
    turn = [[("a", timed), "a", ("b", timed), "b"] for timed in (False, True, True)]
    assert log == sum(turn, [])
    assert seconds == {"a": [3, 3], "b": [3, 3]}


def test_without_warm_calls_all_are_timed():
    log = []
    assert len(alternate({1: lambda: log.append(1)}, 3, warm=0)[1]) == len(log) == 3
