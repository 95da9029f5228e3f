"""Transitions of n steps, against a scalar reference on episodes of lists."""

import numpy as np
import pytest

from dml.data.replay.n_step import transitions
from dml.types import BadInput, Environment, rollout_dtype, transition_dtype

COUNTER = Environment("counter", (1,), 4, 9, 1.0, lambda seeds: None)
DTYPE = transition_dtype(COUNTER)


def random_rollout(length, copies, seed):
    """Return a rollout with next-step resets; observations are distinct numbers."""
    random = np.random.default_rng(seed)
    rollout = np.zeros(1, rollout_dtype(COUNTER, copies, length))[0]
    rollout["actor"] = 7
    rollout["versions"] = np.arange(length) // 3
    numbers = np.arange((length + 1) * copies).reshape(length + 1, copies, 1)
    rollout["observations"] = numbers
    rollout["actions"] = random.integers(0, 4, (length, copies))
    rollout["rewards"] = random.normal(size=(length, copies))
    ended = np.zeros(copies, bool)
    for t in range(length):
        rollout["resets"][t] = ended
        kind = random.integers(0, 8, copies) * ~ended
        rollout["terminated"][t], rollout["truncated"][t] = kind == 1, kind == 2
        rollout["rewards"][t] *= ~ended
        ended = (kind == 1) | (kind == 2)
    return rollout


def reference(rollout, steps, gamma, copy):
    """Return (first, last observation, reward, discount, action) of each transition."""
    length = len(rollout["rewards"])
    result = {}
    for t in range(length - steps):
        if rollout["resets"][t, copy]:
            continue
        reward, m = 0.0, 0
        while True:
            reward += gamma**m * float(rollout["rewards"][t + m, copy])
            terminated = bool(rollout["terminated"][t + m, copy])
            truncated = bool(rollout["truncated"][t + m, copy])
            m += 1
            if terminated or truncated or m == steps:
                break
        first = float(rollout["observations"][t, copy, 0])
        last = float(rollout["observations"][t + m, copy, 0])
        discount = 0.0 if terminated else gamma**m
        action = int(rollout["actions"][t, copy])
        result[first] = (last, reward, discount, action, t // 3)
    return result


@pytest.mark.parametrize("steps", [1, 2, 3, 5])
def test_transitions_are_those_of_a_scalar_reference(steps):
    rollout = random_rollout(40, 6, steps)
    records = transitions(rollout, steps, 0.9, DTYPE)
    expected = {}
    for copy in range(6):
        expected |= reference(rollout, steps, 0.9, copy)
    assert len(records) == len(expected) and (records["actor"] == 7).all()
    for record in records:
        last, *numbers = expected[float(record["observations"][0, 0])]
        assert record["observations"][1, 0] == last
        names = ("reward", "discount", "action", "version")
        found = [record[name] for name in names]
        np.testing.assert_allclose(found, numbers, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("steps", [1, 3])
def test_no_transition_crosses_a_reset_and_the_limit_of_steps_has_a_value(steps):
    rollout = random_rollout(60, 5, 9)
    records = transitions(rollout, steps, 0.5, DTYPE)
    assert len(records) == np.count_nonzero(~rollout["resets"][:-steps])
    for first, last in records["observations"][:, :, 0].astype(int):
        copy, t, end = first % 5, first // 5, last // 5
        assert last % 5 == copy and 1 <= end - t <= steps
        assert not rollout["resets"][t:end, copy].any()
        ends = rollout["terminated"] | rollout["truncated"]
        assert not ends[t : end - 1, copy].any()
        (found,) = records[records["observations"][:, 0, 0] == first]
        if rollout["truncated"][end - 1, copy]:
            assert found["discount"] == 0.5 ** (end - t)
        if rollout["terminated"][end - 1, copy]:
            assert found["discount"] == 0


def test_consecutive_windows_have_each_transition_once():
    """The last n steps of a window are the first ones of the next."""
    whole = random_rollout(43, 4, 2)
    full = transitions(whole, 3, 0.9, DTYPE)
    parts = []
    for start in range(0, 40, 8):
        part = np.zeros(1, rollout_dtype(COUNTER, 4, 11))[0]
        for name in part.dtype.names:
            if part[name].ndim:
                count = len(part[name])
                part[name][:] = whole[name][start : start + count]
        part["actor"] = 7
        parts.append(transitions(part, 3, 0.9, DTYPE))
    assert np.concatenate(parts).tobytes() == full.tobytes()


@pytest.mark.parametrize("steps", [0, 5])
def test_steps_out_of_range_are_refused(steps):
    with pytest.raises(BadInput, match="expected transitions of 1 to 4 steps"):
        transitions(random_rollout(5, 1, 0), steps, 0.9, DTYPE)
