"""Claims of A3C (Mnih 2016), judged by runs of a3c.py.

The rules were written before the first run. Table 2 of the paper has the mean speedup
of seven Atari games to a fixed score, with 1, 2, 4, 8 and 16 threads. Figure 3 has the
score by epochs of data, with the same numbers of threads.
"""

from lab.claims import Verdict, claim, untested, verdict

from dml.runs.results import Run
from dml.runs.writers import Row

PUBLISHED = {2: 2.1, 4: 3.7, 8: 6.9, 16: 12.5}  # speedup by number of threads
PART = 0.5  # least part of the published speedup
GROWTH = 1.5  # largest ratio of frames
MIN_SEEDS = 3  # fewest trainings whose means are compared


def by_workers(run: Run) -> dict[int, Row]:
    """Return rows by number of workers; KeyError unless 1 and another number exist."""
    rows = {row["workers"]: row for row in run.rows}
    if 1 not in rows or len(rows) < 2:
        raise KeyError("one worker and several")
    return rows


@claim(
    "more workers reach a score in less time",
    "speedup 2.1, 3.7, 6.9, 12.5 with 2, 4, 8, 16 threads",
)
def speedup(run: Run) -> Verdict:
    """Each number of workers has at least half of the published speedup."""
    rows = by_workers(run)
    if any(row["seconds"] is None for row in rows.values()):
        return verdict(False, "a training did not reach the return", "all required")
    speedups = {
        workers: rows[1]["seconds"] / row["seconds"]
        for workers, row in rows.items()
        if workers in PUBLISHED
    }
    text = ", ".join(f"{value:.1f}" for value in speedups.values())
    text = f"speedup {text} with {', '.join(map(str, speedups))} workers"
    if rows[1]["seeds"] < MIN_SEEDS:
        return untested(f"fewer than {MIN_SEEDS} seeds", text)
    holds = all(value >= PART * PUBLISHED[n] for n, value in speedups.items())
    return verdict(holds, text, "required half of the published ones")


@claim("the frames to a score do not grow with the workers", "figure 3, no number")
def frames_constant(run: Run) -> Verdict:
    """Most workers need at most 1.5 times the frames of one worker."""
    rows = by_workers(run)
    last = rows[max(rows)]
    if None in (rows[1]["frames"], last["frames"]):
        return verdict(False, "a training did not reach the return", "all required")
    text = (
        f"{rows[1]['frames'] / 1000:.0f} k frames with 1 worker, "
        f"{last['frames'] / 1000:.0f} k with {last['workers']}"
    )
    if last["seeds"] < MIN_SEEDS:
        return untested(f"fewer than {MIN_SEEDS} seeds", text)
    ratio = last["frames"] / rows[1]["frames"]
    return verdict(ratio <= GROWTH, text, f"{ratio:.2f} times, required 1.5")


CLAIMS = (speedup, frames_constant)
