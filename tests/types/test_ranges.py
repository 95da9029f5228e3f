"""Ranges of options: what a signature states, what is refused, and the messages."""

from typing import Annotated, NamedTuple

import numpy as np
import pytest

from dml.types import BadInput
from dml.types.ranges import Count, Fraction, OneOf, Positive, Range, checked, options


@checked
def steps(
    problem,
    *,
    every: Count,
    share: Fraction = 0.5,
    rate: Positive | None = None,
    kind: Annotated[str, OneOf(("a", "b"))] = "a",
    twice: bool = False,
    other: list | None = None,
):
    yield problem, every, share, rate, kind, twice, other


GOOD = [
    {"every": 1},
    {"every": np.int64(10**6), "share": np.float32(1), "twice": np.True_},
    {"every": 2, "share": 0, "rate": None, "kind": "b", "other": "of any type"},
]
WRONG = [
    ({"every": 0}, "a whole number from 1 to 1000000 for every of steps, got 0; pass"),
    ({"every": 1 << 63}, "a whole number from 1 .*, got 9223372036854775808"),
    ({"every": 1.0}, "a whole number from 1 .*, got 1.0"),
    ({"every": True}, "a whole number from 1 .*, got True"),
    ({"every": None}, "a whole number from 1 .*, got None"),
    ({"every": 1, "share": float("nan")}, "a number from 0 to 1 for share .*, got nan"),
    ({"every": 1, "share": "1"}, "a number from 0 to 1 for share of steps, got '1'"),
    ({"every": 1, "rate": 0}, r"a number above 0 to 1e\+38, or None for rate"),
    ({"every": 1, "rate": float("inf")}, "a number above 0 .*, got inf"),
    ({"every": 1, "kind": "c"}, "one of a, b for kind of steps, got 'c'"),
    ({"every": 1, "twice": 1}, "True or False for twice of steps, got 1"),
]


@pytest.mark.parametrize("own", GOOD)
def test_values_in_their_ranges_reach_the_function(own):
    (found,) = steps("problem", **own)
    assert found[1] == own["every"]


@pytest.mark.parametrize("own, message", WRONG)
def test_values_out_of_range_are_refused_at_the_call_of_a_generator(own, message):
    with pytest.raises(BadInput, match=f"^expected {message}"):
        steps("problem", **own)


class Inner(NamedTuple):
    size: Count = 1
    name: str = ""


class Settings(NamedTuple):
    inner: Inner = Inner()
    share: Fraction = 0.0


def test_the_fields_of_settings_are_checked_also_of_settings_in_settings():
    @checked
    def run(*, settings: Settings) -> Settings:
        return settings

    assert run(settings=Settings(Inner(2), 1)) == Settings(Inner(2), 1)
    with pytest.raises(BadInput, match="to 1 for share of settings of run, got 1.5"):
        run(settings=Settings(share=1.5))
    with pytest.raises(BadInput, match="size of inner of settings of run, got 0"):
        run(settings=Settings(Inner(0)))


def test_options_are_keywords_with_a_plain_type():
    assert list(options(steps)) == ["every", "share", "rate", "kind", "twice"]
    assert options(steps)["every"].range == Range(1, 10**6)
