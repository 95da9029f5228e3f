"""Claims of IMPALA and SEED (Espeholt 2018, 2020), judged by runs of rl.py.

The rules were written before the first run.
"""

from lab.claims import Verdict, claim, untested, verdict

from dml.runs.results import Run

MIN_UPDATES = 20  # fewest updates, so that start and end of a run hardly matter
MIN_FRAMES = 50_000  # fewest frames whose speed is measured


def words_per_frame(run: Run) -> float:
    """Return the counted words per step of an environment, with steps that reset."""
    played = run.summary["environment_steps"]
    return float(run.summary["words_sent"] / played)


@claim("central inference sends fewer bytes if the model is large", "no number")
def fewer_words(impala: Run, seed: Run) -> Verdict:
    """With the same large model SEED sends fewer words per frame than IMPALA."""
    words = [words_per_frame(run) for run in (impala, seed)]
    text = f"{words[0]:.1f} words per frame by IMPALA, {words[1]:.1f} by SEED"
    if seed.summary["steps"] < MIN_UPDATES:
        return untested(f"fewer than {MIN_UPDATES} updates", text)
    return verdict(words[1] < words[0], text, f"counted; widths {seed.flags['widths']}")


@claim("its bytes do not depend on the size of the model", "no number")
def equal_words(small: Run, large: Run) -> Verdict:
    """SEED's words per frame with a large and a small model differ by at most 1 %."""
    words = [words_per_frame(run) for run in (small, large)]
    text = f"{words[0]:.2f} and {words[1]:.2f} words per frame"
    if large.summary["steps"] < MIN_UPDATES:
        return untested(f"fewer than {MIN_UPDATES} updates", text)
    reason = f"widths {small.flags['widths']} and {large.flags['widths']}"
    return verdict(abs(words[1] / words[0] - 1) <= 0.01, text, reason)


@claim("IMPALA plays more frames per second than A3C", "250 k and 46 k")
def faster(a3c: Run, impala: Run) -> Verdict:
    """On equally many ranks IMPALA trains on more frames per second."""
    speeds = [run.summary["frames_per_second"] for run in (a3c, impala)]
    text = f"{speeds[1]:,.0f} frames/s by IMPALA, {speeds[0]:,.0f} by A3C"
    if min(run.summary["frames"] for run in (a3c, impala)) < MIN_FRAMES:
        return untested(f"fewer than {MIN_FRAMES:,} frames", text)
    return verdict(speeds[1] > speeds[0], text, "real ranks; the paper has 200 workers")
