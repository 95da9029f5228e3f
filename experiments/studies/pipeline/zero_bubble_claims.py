"""Claims of Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024 (2023).

The bubbles are those of schedules with K stages and pieces of F, B and W seconds.
"""

from collections.abc import Mapping
from typing import Any

from lab.claims import Verdict, claim, rows, verdict

from dml.runs.results import Run
from studies.pipeline.zero_bubble import EQUAL_LABEL

ROUNDING = 1e-9  # relative, of sums of seconds
SUM_ORDER = 4e-6  # of float32, relative to the largest gradient
TWICE = 2.0  # memory of zb_h2, in that of 1f1b


def equal_rows(run: Run) -> Mapping[str, Any]:
    """Return the rows of F = B = W by schedule."""
    cells = rows(run, table="zero_bubble", durations=EQUAL_LABEL)
    return {row["schedule"]: row for row in cells}


@claim(
    "ZB-H1 shrinks the bubble at the memory of 1F1B",
    "(K - 1)(F + B - W) of (K - 1)(F + B + W): a third",
)
def h1_bubble(run: Run) -> Verdict:
    """At F = B = W, ZB-H1 has at most (F + B - W)/(F + B + W) of 1F1B's bubble.

    It has at most as many microbatches in flight.
    """
    by_schedule = equal_rows(run)
    h1, one = by_schedule["zb_h1"], by_schedule["1f1b"]
    f, b, w = h1["piece_seconds"]
    share = (f + b - w) / (f + b + w)
    holds = h1["bubble"] <= share * one["bubble"] * (1 + ROUNDING)
    holds &= h1["in_flight"] <= one["in_flight"]
    measured = f"{h1['bubble']:.2f} of {one['bubble']:.2f} (F + B + W)"
    memory = f"{h1['in_flight']:g} of {one['in_flight']:g} microbatches in flight"
    return verdict(holds, measured, memory)


@claim("ZB-H2 has no bubble at twice the memory", "(K - 1)(F + B - 2W): 0 if F = B = W")
def h2_bubble(run: Run) -> Verdict:
    """At F = B = W, stages of ZB-H2 are idle for no time in a run without flushes.

    It has at most twice as many microbatches in flight as 1F1B.
    """
    by_schedule = equal_rows(run)
    h2, one = by_schedule["zb_h2"], by_schedule["1f1b"]
    holds = abs(h2["run"]) <= ROUNDING and h2["in_flight"] <= TWICE * one["in_flight"]
    memory = f"{h2['in_flight']:g} of {one['in_flight']:g} microbatches in flight"
    return verdict(holds, f"{h2['run']:.2f} (F + B + W)", memory)


@claim("ZB-V has no bubble at the memory of 1F1B", "0 if F = B = W")
def v_bubble(run: Run) -> Verdict:
    """At F = B = W, stages of ZB-V are idle for no time in a run without flushes.

    It has at most as many microbatches in flight as 1F1B.
    """
    by_schedule = equal_rows(run)
    folded, one = by_schedule["zb_v"], by_schedule["1f1b"]
    holds = abs(folded["run"]) <= ROUNDING
    holds &= folded["in_flight"] <= one["in_flight"]
    memory = f"{folded['in_flight']:g} of {one['in_flight']:g} microbatches in flight"
    return verdict(holds, f"{folded['run']:.2f} (F + B + W)", memory)


@claim("the semantics are those of synchronous training", "equal losses")
def same_gradients(run: Run) -> Verdict:
    """Gradients differ from GPipe's by the rounding of sums at most.

    XLA fuses the cheap operations of two programs otherwise than those of one, so bits
    may differ; without its optimizations they are those of 1F1B.
    """
    split = [row for row in rows(run, table="measured") if "zb_" in row["schedule"]]
    worst = max(row["difference"] for row in split)
    same = sum(row["bits_of_1f1b"] for row in split)
    measured = f"{worst:.0e} of the largest gradient at most"
    reason = f"required {SUM_ORDER:g}; {same} of {len(split)} have the bits of 1f1b"
    return verdict(worst <= SUM_ORDER, measured, reason)


@claim("post-validation keeps the semantics of clipping, and pays", "about 8 %")
def post_validation(run: Run) -> Verdict:
    """Params have the bits of clipping after a barrier, clipped or not.

    Minibatches of ZB-H2 and ZB-V take less virtual time, clipped or not.
    """
    cells = rows(run, table="post_validation")
    same = all(row["same_bits"] for row in cells)
    saved = [row["saved"] for row in cells if row["schedule"] in ("zb_h2", "zb_v")]
    clipped = max(row["clipped_updates"] for row in cells)
    measured = f"{min(saved):.1%} to {max(saved):.1%} saved"
    reason = f"{'equal' if same else 'other'} bits, {clipped} clipped updates at most"
    return verdict(same and min(saved) > 0 and clipped > 0, measured, reason)


CLAIMS = (h1_bubble, h2_bubble, v_bubble, same_gradients, post_validation)
