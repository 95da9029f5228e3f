"""watch.html: a pipeline schedule on virtual ranks, piece by piece."""

import math
from pathlib import Path
from typing import Any

from lab.watching import Recording

from dml import sim
from dml.sim.networks.named import network
from dml.wire.comm import Traced
from dml.wire.plans.pipeline.schedules import FORWARD, Schedule
from dml.wire.plans.pipeline.stages import balanced_parts
from dml.wire.plans.pipeline.times import stage_work
from studies.pipeline.virtual import Layers, run_stage

# Values of a chunk, a microbatch of a stage, and their colours.
TEXTS = ("not begun", "activations stored", "input gradient sent", "complete")
PALETTE = ("#b9c0c7", "#3b76c0", "#e0b84c", "#4aa06e")
STORED, SENT, COMPLETE = 1, 2, 3
COLOURS = {
    "forward": "#3b76c0",
    "backward": "#4aa06e",
    "input gradient": "#e0b84c",
    "weight gradient": "#4aa06e",
}


class Stage(Traced):
    """A traced stage whose computations are phases named by their pieces."""

    def begin_schedule(self, schedule: Schedule, recording: Recording) -> None:
        """Record the pieces of this schedule from now on."""
        self.schedule, self.recording = schedule, recording
        self.work = iter(stage_work(schedule, self.rank))
        self.values = [0] * (schedule.microbatches * schedule.rounds)
        recording.show(self.rank, self.values)

    def compute(self, seconds: float, unless: Any = None) -> bool:
        schedule, start = self.schedule, self.Wtime()
        piece, microbatch, part = next(self.work)
        done = super().compute(seconds, unless)
        self.add_interval(piece_name(schedule, piece), start, self.Wtime())
        own = [k for k in range(schedule.parts) if schedule.stage_of[k] == self.rank]
        chunk = own.index(part) * schedule.microbatches + microbatch
        if piece == FORWARD:
            self.values[chunk] = STORED
        elif piece == schedule.pieces:
            self.values[chunk] = COMPLETE
        elif schedule.split:
            self.values[chunk] = SENT
        self.recording.show(self.rank, self.values)
        return done


def piece_name(schedule: Schedule, piece: int) -> str:
    """Return the name of a piece, as in COLOURS."""
    if piece == FORWARD or not schedule.split:
        return "backward" if piece else "forward"
    return "input gradient" if piece == FORWARD + 1 else "weight gradient"


def write(path: Path, name: str, schedule: Schedule, layers: Layers) -> int:
    """Run a schedule on virtual ranks and write its page; return its messages.

    Args:
      path: Path of the page.
      name: Name of the schedule.
      schedule: The schedule.
      layers: Layers, divided into parts of nearly equal time, and network.
    """
    recording = Recording(schedule.stages)
    pieces = 1 + schedule.pieces
    cuts = balanced_parts(layers.seconds, schedule.parts)
    seconds = [math.fsum(layers.seconds[part.start : part.stop]) for part in cuts]
    durations = [[each / pieces] * pieces for each in seconds]

    def program(comm: Any) -> None:
        stage = recording.wrap(comm, Stage)
        stage.begin_schedule(schedule, recording)
        run_stage(stage, schedule, durations, layers.nbytes)

    fabric = network(layers.network, schedule.stages)
    sim.run(program, schedule.stages, fabric)
    values = range(len(TEXTS)) if schedule.split else (0, STORED, COMPLETE)
    return recording.write(
        path,
        f"{name}, {schedule.stages} stages and {schedule.microbatches} microbatches",
        "A pipeline on virtual ranks, recorded from a run of the code. A circle is a "
        "stage, a message has activations or their gradient. A strip has a chunk for "
        "each microbatch, whose activations occupy memory until it is complete.",
        levels={value: TEXTS[value] for value in values},
        palette=PALETTE,
        colours=COLOURS,
        network=fabric,
    )
