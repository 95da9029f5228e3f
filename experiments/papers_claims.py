"""What a paper is here: numbers and claims, commands in; a verdict of each claim out.

A rule is a function of what the paper's commands left, read back from their run
folders, by the commands' names. Its docstring is the rule in words.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

from dml.metrics.results import Run

HOLDS, FAILS, UNTESTED = "holds", "fails", "not testable here"
SIZES = ("full", "quick", "tiny")

Seen = Mapping[str, Run]
Some = TypeVar("Some", list, dict)
# What Python says of the largest, the last or the mean of nothing.
NOTHING = (IndexError, ValueError, TypeError, ArithmeticError)


class Finding(NamedTuple):
    """What a rule says: a verdict, our numbers, why."""

    verdict: str
    ours: str
    because: str


class Claim(NamedTuple):
    """What a paper says, with its numbers, and the rule that judges it by ours."""

    says: str
    published: str
    rule: Callable[[Seen], Finding]


class Command(NamedTuple):
    """An experiment, its flags at full size, and those that shrink it."""

    script: str
    flags: str = ""
    quick: str = ""
    tiny: str = ""
    ranks: int = 0  # of mpirun; 0: none

    def words(self, size: str) -> list[str]:
        """Return the flags of a size, where later ones replace earlier ones."""
        more = {"full": "", "quick": self.quick, "tiny": self.tiny}[size]
        words = f"{self.flags} {more}".split()
        return list({word.partition("=")[0]: word for word in words}.values())


class Paper(NamedTuple):
    """A row of the table; without commands nothing of it can be run."""

    name: str
    cited: str  # authors, title, where, year
    scale: str  # ours against theirs; {cores} are this machine's
    claims: tuple[Claim, ...]
    commands: Mapping[str, Command] = {}
    figure: str = ""  # of a command's run folder: command/name.svg
    seconds: tuple[int, int] = (0, 0)  # about, on two quiet cores: full and quick


def judged(holds: bool, ours: str, because: str) -> Finding:
    """Return that a claim holds, or fails."""
    return Finding(HOLDS if holds else FAILS, ours, because)


def untested(why: str, ours: str = "-") -> Finding:
    return Finding(UNTESTED, ours, why)


def never(why: str) -> Callable[[Seen], Finding]:
    """Return the rule of a claim that nothing here can test."""

    def rule(seen: Seen) -> Finding:
        return untested(why)

    rule.__doc__ = "None: nothing here can test this."
    return rule


def some(found: Some, what: str) -> Some:
    """Return what a rule has found in a run; of nothing, anything would be true."""
    if not found:
        raise KeyError(what)
    return found


def found(claim: Claim, seen: Seen) -> Finding:
    """Judge a claim; a number that a run does not have leaves it untested."""
    try:
        return claim.rule(seen)
    except KeyError as missing:
        return untested(f"the run has no {missing}")
    except NOTHING as error:
        return untested(f"the run has too few numbers: {error}")
