"""The same training on virtual ranks, with deaths at random virtual times."""

import random
from collections.abc import Sequence
from pathlib import Path

from lab import started

from studies.elastic.real import ElasticPlan, Kill, recoveries

MEAN = 0.01  # virtual seconds between two deaths by default


def train(
    plan: ElasticPlan, options: Sequence[str], out: Path
) -> tuple[list[Kill], list[tuple[float, int]]]:
    """Run vision.py on virtual ranks that die; return the deaths and the progress.

    The arguments and the results are those of `real.train`; times are virtual.
    """
    deaths = draw_deaths(plan)
    events = ";".join(f"die:{kill.process}@{kill.time!r}" for kill in deaths)
    extra = [f"--simulate={plan.ranks}", f"--events={events}"]
    run = started.run("vision.py", 0, "vision.py", [*options, *extra], out)
    noticed = [(row["committed"], row["step"]) for row in recoveries(out)]
    seconds = sum(row["seconds"] for row in run.rows)
    return deaths, [(0.0, 0), *noticed, (seconds, run.summary["step"])]


def draw_deaths(plan: ElasticPlan) -> list[Kill]:
    """Return random virtual times, and the ranks that die."""
    draws, time, deaths = random.Random(plan.seed), 0.0, []
    for victim in draws.sample(range(plan.workers), plan.most_kills):
        time += draws.expovariate(1 / plan.mean)
        deaths.append(Kill(time, victim))
    return deaths
