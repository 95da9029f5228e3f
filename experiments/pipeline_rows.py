"""Pipelines as `pipeline.py` asks for them in; a row of each, beside GPipe's, out."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pipeline_virtual import CUTS, Layers, speed_up

from dml.metrics.writers import Row
from dml.wire import pipeline_facts as facts
from dml.wire.pipelines import SCHEDULES, Schedule, make, pipedream
from dml.wire.stages import imbalance

# GPipe (Huang 2019), Table 2, by stages and microbatches: relative to its own K = 2 at
# M = 1, where only one device computes at any time.
TRANSFORMER = {
    2: {1: 1.0, 4: 1.7, 32: 1.8},
    4: {1: 1.07, 4: 3.2, 32: 3.4},
    8: {1: 1.3, 4: 4.8, 32: 6.3},
}
AMOEBANET = {2: 1.21, 4: 1.84, 8: 3.48}  # M = 32
MANY, MOST = 32, max(TRANSFORMER)  # microbatches, stages
# Of a network that shrinks as it deepens: its eighths take 25, 25, 15, 15, 5, 5, 5, 5 %
# of the time. Ours, chosen to be, cut evenly, as uneven as AmoebaNet's row implies.
UNEVEN = [0.020] * 6 + [0.012] * 6 + [0.004] * 12


TURNS = 5  # of a race on real devices


class Plan(NamedTuple):
    """What the flags ask for."""

    layers: Layers
    stages: int
    microbatches: int
    rounds: int  # of interleaved
    measured: Sequence[int] = ()  # microbatches on real devices
    shape: Sequence[int] = ()  # of the GPT they train: transformer.Shape's
    microbatch: int = 1  # examples in one


def grid(plan: Plan) -> Iterator[Row]:
    """Play gpipe for all of Table 2's stages and microbatches."""
    for stages, row in TRANSFORMER.items():
        for microbatches, published in row.items():
            schedule = make("gpipe", stages, microbatches)
            yield {
                "stages": stages,
                "microbatches": microbatches,
                "published": published,
                "formula": facts.speed_up(schedule),
                "virtual": speed_up(schedule, plan.layers),
            }


def uneven(plan: Plan) -> Iterator[Row]:
    """Play gpipe on uneven layers, cut in both ways."""
    layers = plan.layers._replace(seconds=UNEVEN)
    for stages, published in AMOEBANET.items():
        schedule = make("gpipe", stages, MANY)
        for name, cut in CUTS.items():
            off = imbalance(UNEVEN, cut(UNEVEN, stages))
            yield {
                "stages": stages,
                "cut": name,
                "published": published,
                "imbalance": off,
                "bound": stages / off,
                "virtual": speed_up(schedule, layers, name),
            }


def measured(plan: Plan) -> Iterator[Row]:
    """Race schedules against one device, where there are several."""
    if plan.measured:
        import compiling
        from pipeline_measured import Problem, speeds

        from dml.models.transformer import Shape

        compiling.cached()
        problem = Problem(Shape(*plan.shape), plan.microbatch, seed=0)
        yield from speeds(problem, plan.measured, TURNS)


def scheduled(plan: Plan) -> dict[str, Schedule]:
    """Return all schedules of as many stages and microbatches as the flags say."""
    rounds = {"interleaved": plan.rounds}
    return {
        name: make(name, plan.stages, plan.microbatches, rounds.get(name, 1))
        for name in SCHEDULES
    }


def compared(plan: Plan) -> Iterator[Row]:
    """Play every schedule; only without a flush is a stage's gradient stale."""
    for name, schedule in scheduled(plan).items():
        stale = facts.staleness(schedule).reshape(-1, schedule.stages).max(axis=0)
        yield {
            "schedule": name,
            "rounds": schedule.rounds,
            "bubble": facts.bubble(schedule),
            "alive": facts.in_flight(schedule).tolist(),
            "formula": facts.speed_up(schedule),
            "virtual": speed_up(schedule, plan.layers),
            "staleness": (stale * (SCHEDULES[name] is pipedream)).tolist(),
        }
