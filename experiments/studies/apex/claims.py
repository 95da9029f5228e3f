"""Claims of prioritised replay and of Ape-X, judged by a run of apex.py.

Schaul et al., Prioritized Experience Replay, ICLR 2016; Horgan et al., Distributed
Prioritized Experience Replay, ICLR 2018. The rules were written before the first run.
Neither paper has numbers of small environments. Learning speed is in figures 1 and 3 of
the first paper; figures 4 and 7 of the second compare numbers of actors and ε.
"""

from statistics import median

from lab.claims import Verdict, claim, rows, untested, verdict

from dml.runs.results import Run

MIN_SEEDS = 5  # fewest trainings whose medians are compared


def updates(run: Run, method: str) -> list[int]:
    """Return the updates to the return of each seed; the limit if not reached."""
    (row,) = rows(run, method=method)
    return [value or run.flags["updates"] for value in row["updates_by_seed"]]


def fewer(run: Run, method: str, other: str) -> Verdict:
    """Judge whether the median of a method's updates is below that of another one."""
    first, second = updates(run, method), updates(run, other)
    middle = median(first), median(second)
    text = (
        f"{method} {middle[0]:.0f} updates ({min(first)} to {max(first)}), "
        f"{other} {middle[1]:.0f} ({min(second)} to {max(second)})"
    )
    reason = f"medians of {len(first)} seeds on {run.flags['environment']}"
    if min(len(first), len(second)) < MIN_SEEDS:
        return untested(f"fewer than {MIN_SEEDS} seeds", text)
    return verdict(middle[0] < middle[1], text, reason)


@claim(
    "prioritised replay learns faster than uniform replay",
    "41 of 49 Atari games better (Schaul 2016)",
)
def prioritised(run: Run) -> Verdict:
    """The median of the updates to the return is lower than with uniform replay."""
    return fewer(run, "apex", "uniform")


@claim(
    "different ε of actors are better than one ε",
    "figure 7 (Horgan 2018), no number",
)
def different_epsilons(run: Run) -> Verdict:
    """The median of the updates is lower than with the geometric mean of all ε."""
    return fewer(run, "apex", "one_epsilon")


@claim(
    "more actors reach a return in fewer updates of the learner",
    "figure 4 (Horgan 2018), 8 to 256 actors, no number",
)
def more_actors(run: Run) -> Verdict:
    """The median of the updates is lower than with a third of the actors.

    All actors play equally many steps in the time of an update.
    """
    return fewer(run, "apex", "fewer_actors")


CLAIMS = (prioritised, different_epsilons, more_actors)
