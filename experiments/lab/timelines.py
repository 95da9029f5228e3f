"""Timelines of training: trace some steps, and draw them into the run folder.

Ranks are traced if `flags.ranks` has wrapped their communicator, by --timeline. With
--profile JAX traces the same steps, and both traces are merged.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from dml.figures import player
from dml.figures import timeline as timeline_figure
from dml.metrics import profile, timeline
from dml.metrics.timer import Timer
from dml.types import BadInput, Step, Timeline

COMPILING_STEPS = 1  # number of first steps, which compile and are not traced
MAX_INTERVALS = 40_000  # largest number of intervals of all ranks: some MB of JSON
MARKS = 8  # events in both traces, by which the clocks are aligned


def timer(comm: Any, clock: Callable[[], float]) -> Timer:
    """Return a timer whose phases are in the timeline, if comm is traced."""
    return Timer(clock, getattr(comm, "add_interval", None))


def traced(
    steps: Iterable[Step], comm: Any, count: int, path: Path, profiled: bool = False
) -> Iterator[Step]:
    """Yield the steps; trace `count` steps after the first; draw them at the end.

    Writes timeline.json, .svg, .png and .html, which plays the messages, into path; if
    profiled, also profile/rank<k>, the trace of JAX, and profile.json.gz, both traces.
    Collective after the last step.
    """
    if profiled and not count:
        raise BadInput(
            "expected steps to trace with --profile, got --timeline=0; pass "
            "--timeline=<number of steps>"
        )
    limit = MAX_INTERVALS // comm.size
    is_traced = hasattr(comm, "add_interval")
    if not is_traced and not profiled:
        yield from steps
        return
    tracer = Tracer(
        comm, limit if is_traced else 0, path / "profile" if profiled else None
    )
    if is_traced:
        comm.align()
    try:
        for step_number, step in enumerate(steps, 1):
            if step_number == COMPILING_STEPS + count:
                tracer.end()
            yield step
            if step_number == COMPILING_STEPS:
                tracer.begin()
    finally:
        tracer.end()
    recorded = comm.timeline() if is_traced else empty_timeline(comm)
    if not recorded:
        return
    recorded, marks = profile.split_marks(recorded)
    if recorded.intervals:
        timeline.write(path / "timeline", recorded)
        timeline_figure.draw(path / "timeline", recorded)
        text = f"{len(recorded.messages)} messages of {comm.size} ranks"
        film = player.Film(path.parent.name, text, comm.size, recorded)
        player.write(path / "timeline.html", film)
        sys.stdout.write(f"timeline {path / 'timeline.svg'}\n")
    if profiled and (recorded.intervals or not is_traced):
        merge(comm, path, recorded, marks)


class Tracer:
    """Starts and stops the trace of a rank and the trace of JAX's profiler.

    Args:
      comm: Communicator; traced unless the limit is 0.
      limit: Largest number of intervals of this rank.
      folder: Folder of JAX's trace; None for no profile. Virtual ranks share one
        process, which rank 0 profiles.
    """

    def __init__(self, comm: Any, limit: int, folder: Path | None) -> None:
        self.comm, self.limit, self.on = comm, limit, False
        self.profiler: Any = None
        if folder and (not comm.platform.virtual or comm.rank == 0):
            import jax.profiler  # slow: not while steps are traced

            self.profiler, self.folder = jax.profiler, folder / f"rank{comm.rank}"

    def begin(self) -> None:
        """Start both traces."""
        self.on = True
        if self.profiler:
            self.profiler.start_trace(self.folder, **options(self.profiler))
        if self.limit:
            self.comm.begin(self.limit + (MARKS if self.profiler else 0))
        if self.limit and self.profiler:
            for _ in range(MARKS):
                start = self.comm.Wtime()
                with self.profiler.TraceAnnotation(profile.MARK):
                    pass
                self.comm.add_interval(profile.MARK, start, self.comm.Wtime())

    def end(self) -> None:
        """Stop both traces."""
        if self.on and self.limit:
            self.comm.end()
        if self.on and self.profiler:
            self.profiler.stop_trace()
        self.on = False


def options(profiler: Any) -> dict[str, Any]:
    """Return options of a JAX trace without Python calls, if JAX supports them."""
    if not hasattr(profiler, "ProfileOptions"):
        return {}
    chosen = profiler.ProfileOptions()
    chosen.python_tracer_level = 0
    return {"profiler_options": chosen}


def empty_timeline(comm: Any) -> Timeline | None:
    """Return an empty timeline on rank 0, None on other ranks; collective."""
    comm.Barrier()
    return None if comm.rank else Timeline([], [])


def merge(comm: Any, path: Path, recorded: Timeline, marks: profile.Marks) -> None:
    """Write profile.json.gz: the timeline and JAX's traces on one clock."""
    virtual = comm.platform.virtual
    traces = {
        rank: profile.read(path / f"profile/rank{rank}")
        for rank in range(1 if virtual else comm.size)
    }
    fits = {rank: profile.fit(traces[rank], marks.get(rank, [])) for rank in traces}
    within = max(fit.error for fit in fits.values())
    title, clocks = "messages", f"one clock, within {within:.1f} us"
    if virtual:
        title, clocks = "messages, in virtual time", "virtual and real time start at 0"
    if not recorded.intervals:
        clocks = "JAX's traces only, each from the start of its rank"
    events = profile.merge(timeline.events(recorded), traces, fits, title)
    profile.write(path / "profile", events, {"clocks": clocks})
    sys.stdout.write(f"profile {path / 'profile.json.gz'}  {clocks}\n")
