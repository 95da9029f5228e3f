"""Tables of pipeline.py: speed-ups of pipelines, and GPipe's published ones."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from lab.claims import grouped

from dml.runs.results import Run
from dml.runs.writers import Columns, Row
from dml.wire.plans.pipeline import facts
from dml.wire.plans.pipeline.schedules import SCHEDULES, Schedule, make, pipedream
from dml.wire.plans.pipeline.stages import imbalance
from studies.pipeline import post_validation
from studies.pipeline.virtual import CUTS, Layers, speed_up
from studies.pipeline.zero_bubble import (
    EQUAL,
    EQUAL_LABEL,
    bubble_rows,
    measured_pieces,
)

# GPipe (Huang 2019), Table 2: speed-ups by stages K and microbatches M, relative to
# K = 2 at M = 1, where only one device computes at any time.
TRANSFORMER = {
    2: {1: 1.0, 4: 1.7, 32: 1.8},
    4: {1: 1.07, 4: 3.2, 32: 3.4},
    8: {1: 1.3, 4: 4.8, 32: 6.3},
}
AMOEBANET = {2: 1.21, 4: 1.84, 8: 3.48}  # M = 32
AMOEBANET_MICROBATCHES = 32
MOST_STAGES = max(TRANSFORMER)
# Seconds of uneven layers: the eighths of the network take 25, 25, 15, 15, 5, 5, 5, 5 %
# of the time. Not published: chosen so that even cuts lose as much as AmoebaNet's.
UNEVEN = [0.020] * 6 + [0.012] * 6 + [0.004] * 12
REPEATS = 5  # timings on real devices


class Arguments(NamedTuple):
    """The arguments of all tables.

    layers: layers and network of virtual pipelines.
    stages: number of stages in the table of schedules.
    microbatches: number of microbatches in the table of schedules.
    rounds: parts of the network on each stage in the interleaved schedule.
    measured: numbers of microbatches to measure on real devices.
    shape: the fields of transformer.Shape of the GPT on real devices.
    microbatch: examples per microbatch on real devices.
    timed: whether F, B and W of a block are timed.
    """

    layers: Layers
    stages: int
    microbatches: int
    rounds: int
    measured: Sequence[int] = ()
    shape: Sequence[int] = ()
    microbatch: int = 1
    timed: bool = False


def grid(arguments: Arguments) -> Iterator[Row]:
    """Yield the speed-up of gpipe for the stages and microbatches of Table 2."""
    for stages, published_row in TRANSFORMER.items():
        for microbatches, published in published_row.items():
            schedule = make("gpipe", stages, microbatches)
            yield {
                "stages": stages,
                "microbatches": microbatches,
                "published": published,
                "formula": facts.speed_up(schedule),
                "virtual": speed_up(schedule, arguments.layers),
            }


def uneven(arguments: Arguments) -> Iterator[Row]:
    """Yield the speed-up of gpipe on uneven layers, for each partition in CUTS."""
    layers = arguments.layers._replace(seconds=UNEVEN)
    for stages, published in AMOEBANET.items():
        schedule = make("gpipe", stages, AMOEBANET_MICROBATCHES)
        for name, cut in CUTS.items():
            largest_to_mean = imbalance(UNEVEN, cut(UNEVEN, stages))
            yield {
                "stages": stages,
                "cut": name,
                "published": published,
                "imbalance": largest_to_mean,
                "bound": stages / largest_to_mean,
                "virtual": speed_up(schedule, layers, name),
            }


def measured(arguments: Arguments) -> Iterator[Row]:
    """Yield the measured speed-up of schedules over one device."""
    if arguments.measured:
        from lab import compiling

        from dml.models.networks.transformer import Shape
        from studies.pipeline.measured import Workload, speeds

        compiling.enable_cache()
        workload = Workload(Shape(*arguments.shape), arguments.microbatch, seed=0)
        yield from speeds(workload, arguments.measured, REPEATS)


def make_schedules(arguments: Arguments) -> dict[str, Schedule]:
    """Return all schedules by name, for the stages and microbatches of the flags."""
    stages, microbatches = arguments.stages, arguments.microbatches
    rounds = {"interleaved": arguments.rounds, "zb_v": 2}
    return {
        name: make(name, stages, microbatches, rounds.get(name, 1))
        for name in SCHEDULES
    }


def schedule_rows(arguments: Arguments) -> Iterator[Row]:
    """Yield bubble, speed-up and staleness of every schedule.

    Gradients are stale in pipedream only, which does not wait for the updates of a
    minibatch.
    """
    for name, schedule in make_schedules(arguments).items():
        stale = facts.staleness(schedule).reshape(-1, schedule.stages).max(axis=0)
        yield {
            "schedule": name,
            "rounds": schedule.rounds,
            "bubble": facts.bubble(schedule),
            "in_flight": facts.in_flight(schedule).tolist(),
            "formula": facts.speed_up(schedule),
            "virtual": speed_up(schedule, arguments.layers),
            "staleness": (stale * (SCHEDULES[name] is pipedream)).tolist(),
        }


def zero_bubbles(arguments: Arguments) -> Iterator[Row]:
    """Yield bubble and memory of 1f1b and zero-bubble schedules, by F, B and W."""
    durations: dict[str, Sequence[float]] = {EQUAL_LABEL: EQUAL}
    if arguments.timed:
        block = measured_pieces(arguments.shape, arguments.microbatch)
        pieces = block["pieces"]
        durations[" ".join(f"{1e3 * each:.2f}" for each in pieces)] = pieces
    yield from bubble_rows(arguments.stages, arguments.microbatches, durations)


def validations(arguments: Arguments) -> Iterator[Row]:
    """Yield seconds of minibatches with clipping, after a barrier or post-validated."""
    layers = arguments.layers
    yield from post_validation.rows(
        arguments.stages,
        arguments.microbatches,
        sum(layers.seconds),
        (layers.nbytes, layers.network),
    )


def stage_counts(counts: Sequence[int]) -> str:
    """Return counts by stage as text; of more than 8 stages, the first 4 and last 3."""
    short = [*counts[:4], "…", *counts[-3:]] if len(counts) > 8 else counts
    return " ".join(map(str, short))


class PipelineTable(NamedTuple):
    """A table: title, columns, a generator of rows, and a row's summary entries."""

    title: str
    columns: Columns
    rows: Callable[[Arguments], Iterator[Row]]
    summary: Callable[[Row], Row]


SPEED_UPS = {"formula": (7, "{formula:.2f}"), "virtual": (7, "{virtual:.2f}")}
STAGES = {"K": (2, "{stages}")}
PUBLISHED = {"published": (9, "{published:.2f}")}
TABLES: dict[str, PipelineTable] = {
    "grid": PipelineTable(
        "GPipe's Table 2, Transformer: speed-up over one device, KM/(M + K - 1)",
        STAGES | {"M": (2, "{microbatches}")} | PUBLISHED | SPEED_UPS,
        grid,
        lambda row: {f"speed_up_{row['stages']}_{row['microbatches']}": row["virtual"]},
    ),
    "imbalance": PipelineTable(
        f"GPipe's Table 2, AmoebaNet: uneven layers, M = {AMOEBANET_MICROBATCHES}, "
        "speed-up at most K / imbalance",
        STAGES
        | {"layers cut": (10, "{cut}")}
        | PUBLISHED
        | {"imbalance": (9, "{imbalance:.2f}"), "K/imbalance": (11, "{bound:.2f}")}
        | {"virtual": SPEED_UPS["virtual"]},
        uneven,
        lambda row: {
            f"uneven_{row['stages']}_{row['cut'].replace(' ', '_')}": row["virtual"]
        },
    ),
    "measured": PipelineTable(
        "On real devices with one core each: speed-up over one device, time of a step "
        "relative to gpipe, and MB of temporary buffers",
        STAGES
        | {"M": (2, "{microbatches}")}
        | {"schedule": (8, "{schedule:8}")}
        | {"ms per step": (11, "{milliseconds:.0f}"), "formula": SPEED_UPS["formula"]}
        | {"measured": (8, "{measured:.2f}"), "of gpipe": (8, "{of_gpipe:.2f}")}
        | {"MB": (7, "{temporary_mb:.1f}")},
        measured,
        lambda row: {
            f"measured_{row['schedule']}_{row['microbatches']}": row["measured"],
            f"of_gpipe_{row['schedule']}_{row['microbatches']}": row["of_gpipe"],
            f"temporary_mb_{row['schedule']}_{row['microbatches']}": row[
                "temporary_mb"
            ],
        },
    ),
    "schedules": PipelineTable(
        "Schedules with v parts per stage; in flight: largest number of microbatches "
        "with saved activations",
        {
            "schedule": (11, "{schedule:11}"),
            "v": (2, "{rounds}"),
            "bubble": (6, "{bubble:.1%}"),
            "in flight by stage": (20, lambda row: stage_counts(row["in_flight"])),
        }
        | SPEED_UPS
        | {"staleness by stage": (20, lambda row: stage_counts(row["staleness"]))},
        schedule_rows,
        lambda row: {
            f"bubble_{row['schedule']}": row["bubble"],
            f"in_flight_{row['schedule']}": max(row["in_flight"]),
            f"speed_up_{row['schedule']}": row["virtual"],
            f"staleness_{row['schedule']}": max(row["staleness"]),
        },
    ),
    "zero_bubble": PipelineTable(
        "Bubble in F + B + W, for stages of equal or measured (ms) F, B, W; run: in a "
        "run without flushes",
        {
            "F, B, W": (14, "{durations:14}"),
            "schedule": (8, "{schedule:8}"),
            "in flight": (9, "{in_flight:g}"),
            "deferred": (8, "{deferred:g}"),
            "formula": (
                7,
                lambda row: "" if row["formula"] is None else f"{row['formula']:.2f}",
            ),
            "bubble": (6, "{bubble:.2f}"),
            "run": (5, "{run:.2f}"),
        },
        zero_bubbles,
        lambda row: (
            {f"run_bubble_{row['schedule']}": row["run"]}
            if row["durations"] == EQUAL_LABEL
            else {}
        ),
    ),
    "post_validation": PipelineTable(
        "Clipping by the norm of all stages: ms per minibatch at F = B = W, with a "
        "barrier or post-validated",
        {
            "schedule": (8, "{schedule:8}"),
            "clipped": (7, "{clipped:7}"),
            "barrier": (8, "{synchronous:.2f}"),
            "validated": (9, "{post_validated:.2f}"),
            "saved": (5, "{saved:.1%}"),
        },
        validations,
        lambda row: {
            f"saved_{row['schedule']}_{row['clipped_updates']}": row["saved"],
        },
    ),
}


def conclude(run: Run) -> str:
    """Return the speed-up of most stages, and the schedule of the least bubble."""
    tables = grouped(run.rows, "table")
    last = tables["grid"][-1]
    text = (
        f"{last['stages']} stages and {last['microbatches']} microbatches are "
        f"{last['virtual']:.2f} times as fast as one device (published "
        f"{last['published']:.2f}, formula {last['formula']:.2f})"
    )
    bubbles = sorted(tables.get("schedules", []), key=lambda row: row["bubble"])
    parts = [f"{row['schedule']} {row['bubble']:.1%}" for row in bubbles]
    return f"{text}; bubbles: {', '.join(parts)}." if parts else f"{text}."
