"""Claims of Dean et al., DistBelief, NIPS 2012, judged by a run of downpour.py.

A strategy is faster if it takes 2 % less time. (A difference of a few messages, in
which two strategies may differ by chance, is less than that.)
"""

import math

from claims import Verdict, claim, untested, verdict

from dml.metrics.results import Run

ADAGRAD, PLAIN = "downpour_adagrad", "downpour_sgd"
IN_STEP = ("sync_sgd", "sync_adagrad")
SOONER = 0.02  # of the time: a smaller difference is a few messages


@claim("AdaGrad makes Downpour faster than SGD does", "reported")
def adagrad_first(run: Run) -> Verdict:
    """Downpour with AdaGrad takes 2 % less time to the target than with SGD."""
    return sooner(run, (PLAIN,))


@claim("Downpour with AdaGrad beats sync, with stragglers", "reported")
def sync_beaten(run: Run) -> Verdict:
    """Downpour with AdaGrad takes 2 % less time to the target than both sync ones."""
    return sooner(run, IN_STEP)


def sooner(run: Run, others: tuple[str, ...]) -> Verdict:
    """Judge whether Downpour with AdaGrad is faster than each of the others."""
    took = {
        way: run.summary[f"{way}_seconds_to_target"] or math.inf
        for way in (ADAGRAD, *others)
    }
    if min(took.values()) == math.inf:
        return untested("no strategy reaches the target")
    ours = ", ".join(f"{way} {one:.0f}" for way, one in took.items())
    holds = all(took[ADAGRAD] < (1 - SOONER) * took[way] for way in others)
    return verdict(
        holds, f"virtual s to the target: {ours}", f"asked {SOONER:.0%} less"
    )


CLAIMS = (adagrad_first, sync_beaten)
