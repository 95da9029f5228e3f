"""Claims of papers: the text, the published numbers, and one rule for each claim.

A rule takes the runs of one or more experiments, as read from their run folders, and
returns a Verdict. Its docstring is the rule in words. The claims of an experiment are
defined in a module `claims` or `<experiment>_claims` of `studies`. The experiment
passes them to `writing.run_writer`, which prints their verdicts and adds them to
summary.json; `papers.py` applies the same rules to the same files and writes
docs/RESULTS.md.
"""

import sys
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from dml.runs.results import Run
from dml.runs.writers import Row

HOLDS, FAILS, UNTESTED = "holds", "fails", "not testable here"
MISSING = "-"  # `measured` of a run that lacks the numbers of a claim

Values = TypeVar("Values", list, dict)
# Errors of the maximum, the mean or an index of an empty sequence.
EMPTY_ERRORS = (IndexError, ValueError, TypeError, ArithmeticError)


class Verdict(NamedTuple):
    """The value of a rule.

    result: HOLDS, FAILS or UNTESTED.
    measured: text of the measured numbers.
    reason: text of the reason.
    """

    result: str
    measured: str
    reason: str


class Claim(NamedTuple):
    """A claim of a paper, its published numbers, and the rule that judges it."""

    text: str
    published: str
    rule: Callable[..., Verdict]

    @property
    def name(self) -> str:
        return self.rule.__name__

    @property
    def rule_text(self) -> str:
        return " ".join((self.rule.__doc__ or "").split())


def claim(text: str, published: str) -> Callable[[Callable[..., Verdict]], Claim]:
    """Return a decorator that makes a Claim of a rule."""
    return lambda rule: Claim(text, published, rule)


def untestable_claim(text: str, published: str, reason: str) -> Claim:
    """Return a claim that no experiment can test."""

    def never_tested() -> Verdict:
        """None: no experiment tests this."""
        return untested(reason)

    return Claim(text, published, never_tested)


def verdict(holds: bool, measured: str, reason: str) -> Verdict:
    """Return the verdict of a claim that was tested."""
    return Verdict(HOLDS if holds else FAILS, measured, reason)


def untested(reason: str, measured: str = MISSING) -> Verdict:
    """Return the verdict of a claim that the numbers cannot test."""
    return Verdict(UNTESTED, measured, reason)


def nonempty(values: Values, name: str) -> Values:
    """Return a list or dict that is not empty; raise KeyError otherwise.

    `all` of no values is true, so a rule must not be applied to an empty input.
    """
    if not values:
        raise KeyError(name)
    return values


def rows(run: Run, **values: str) -> list[Row]:
    """Return the rows of a run that have the given values; KeyError if none has."""
    return nonempty(matching(run.rows, **values), ", ".join(values.values()))


def matching(rows: Iterable[Row], **values: Any) -> list[Row]:
    """Return the rows that have the given values."""
    return [row for row in rows if all(row[k] == v for k, v in values.items())]


def grouped(rows: Iterable[Row], *keys: str) -> dict[Any, list[Row]]:
    """Return the rows by the value of a key, or by the values of several keys."""
    groups: dict[Hashable, list[Row]] = {}
    for row in rows:
        values = tuple(row[key] for key in keys)
        groups.setdefault(values if len(keys) > 1 else values[0], []).append(row)
    return groups


def judge(claim: Claim, *runs: Run) -> Verdict:
    """Apply a claim's rule; a run without the numbers leaves the claim untested."""
    try:
        return claim.rule(*runs)
    except KeyError as missing:
        return untested(f"the run has no {missing}")
    except EMPTY_ERRORS as error:
        return untested(f"the run has too few numbers: {error}")


def print_verdicts(claims: Sequence[Claim], run: Run) -> dict[str, Any]:
    """Print the verdict of each claim for which a run has numbers.

    Returns:
      The entries of the summary, none without claims: `verdict`, all claims by verdict
      in one line, and `verdict_<name>` and `found_<name>`, the verdict and the numbers
      of each claim.
    """
    summary: dict[str, Any] = {}
    by_result: dict[str, list[str]] = {HOLDS: [], FAILS: [], UNTESTED: []}
    for claim in claims:
        result, measured, reason = judge(claim, run)
        by_result[result].append(claim.text)
        summary |= {f"verdict_{claim.name}": result, f"found_{claim.name}": measured}
        if measured != MISSING:
            sys.stdout.write(
                f"published: {claim.text} ({claim.published})\n"
                f"ours: {measured} ({reason}): {result}\n"
            )
    parts = [
        f"{result}: {', '.join(texts)}" for result, texts in by_result.items() if texts
    ]
    return {"verdict": "; ".join(parts)} | summary if claims else {}


def count_verdicts(summary: Mapping[str, Any]) -> str:
    """Return the numbers of verdicts in a summary as a sentence; empty without any."""
    results = [v for name, v in summary.items() if name.startswith("verdict_")]
    if not results:
        return ""
    parts = [
        f"{results.count(result)} {text}"
        for result, text in ((FAILS, "fail"), (UNTESTED, "not testable here"))
        if result in results
    ]
    return (
        f"{results.count(HOLDS)} of {len(results)} published results hold"
        f"{' (' + ', '.join(parts) + ')' if parts else ''}."
    )
