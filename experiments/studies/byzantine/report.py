"""Rows, worst cases, summary and conclusion of byzantine.py."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dml.runs.results import Run
from dml.runs.writers import Columns
from studies.byzantine.cells import Line

Row = dict[str, Any]
MISSING = "-"  # text of a cell that a rule cannot have
HOLDS = 0.05  # largest loss of accuracy under attack of a rule that holds


class Worst(NamedTuple):
    """The least accuracy of a rule over attacks, and its attack and skew."""

    accuracy: float
    attack: str
    skew: str


def columns(attackers: Sequence[int], skews: Sequence[str]) -> Columns:
    """Return the columns of the printed heat map: one for each number of attackers."""
    shown: dict[str, Any] = {"skew": (12, "{skew}")} if len(skews) > 1 else {}
    shown |= {"rule": (26, "{rule}"), "attack": (13, "{attack}")}
    return shown | {f"f={n}": (6, f"{{{key(n)}:.3f}}") for n in attackers}


def key(attackers: int) -> str:
    """Return the name of the mean accuracy with a number of attackers in a row."""
    return f"accuracy_{attackers}"


def row(line: Line, accuracies: Mapping[int, Sequence[float]]) -> Row:
    """Return the row of a line.

    Args:
      line: Rule, attack and skew.
      accuracies: Accuracies of all seeds by number of attackers; none if the rule does
        not tolerate them.
    """
    means = {
        key(count): float(np.mean(values)) if values else None
        for count, values in accuracies.items()
    }
    lists = {str(count): list(values) for count, values in accuracies.items()}
    named = line._replace(rule=line.rule.rpartition("/")[2])  # without folders
    return named._asdict() | means | {"accuracies": lists}


def counts(rows: Sequence[Row]) -> list[int]:
    """Return the numbers of attackers of the rows, in order."""
    return sorted(map(int, rows[0]["accuracies"]))


def worst(rows: Iterable[Row], rule: str, attackers: int) -> Worst | None:
    """Return the worst case of a rule; None if it does not tolerate the attackers.

    A rule is judged by the attack that harms it most, with means over seeds: an
    adversary knows the rule.
    """
    name = key(attackers)
    cases = [
        Worst(row[name], row["attack"] if attackers else "none", row["skew"])
        for row in rows
        if row["rule"] == rule and row[name] is not None
    ]
    return min(cases, default=None)


def rules(rows: Sequence[Row]) -> list[str]:
    """Return the rules of the rows, in order."""
    return list(dict.fromkeys(row["rule"] for row in rows))


def summarize(rows: Sequence[Row]) -> Row:
    """Return worst cases by rule and number of attackers, and the best rule."""
    summary: Row = {}
    for rule in rules(rows):
        for count in counts(rows):
            case = worst(rows, rule, count)
            summary[f"{rule}_worst_{count}"] = case.accuracy if case else None
            summary[f"{rule}_attack_{count}"] = case.attack if case else None
    best, most = best_rule(rows)
    return summary | {"best_rule": best, "attackers": most}


def best_rule(rows: Sequence[Row]) -> tuple[str, int]:
    """Return the rule with the best worst case at most attackers, and their number."""
    for count in reversed(counts(rows)):
        cases = {rule: worst(rows, rule, count) for rule in rules(rows)}
        known = {rule: case for rule, case in cases.items() if case}
        if known:
            return max(known, key=lambda rule: known[rule].accuracy), count
    raise KeyError("a rule that tolerates the attackers")


def conclude(run: Run) -> str:
    """Return the worst case of the best rule and of the mean in a sentence."""
    summary = run.summary
    best, count = summary["best_rule"], summary["attackers"]
    accuracy, attack = (
        summary[f"{best}_{what}_{count}"] for what in ("worst", "attack")
    )
    text = f"With {count} attackers the best worst case is {accuracy:.1%}, of {best}"
    text += f" under {attack}" if count else ""
    if best != "mean" and summary.get(f"mean_worst_{count}") is not None:
        text += f"; the mean has {summary[f'mean_worst_{count}']:.1%}"
    return f"{text}."


def print_worst(rows: Sequence[Row]) -> None:
    """Print the worst case of each rule by number of attackers."""
    attackers = counts(rows)
    lines = [
        "",
        f"{'worst case of':26}  " + "  ".join(f"{f'f={n}':<20}" for n in attackers),
    ]
    for rule in rules(rows):
        cases = [worst(rows, rule, count) for count in attackers]
        texts = [f"{c.accuracy:.3f} {c.attack}" if c else MISSING for c in cases]
        lines.append(f"{rule:26}  " + "  ".join(f"{text:<20}" for text in texts))
    sys.stdout.write("\n".join(line.rstrip() for line in lines) + "\n\n")
