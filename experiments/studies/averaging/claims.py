"""Claims on averaging without a centre, judged by a run of averaging.py.

Ryabinin et al., Moshpit SGD, NeurIPS 2021, and the notebook of its authors.
"""

import math

from lab.claims import Verdict, claim, matching, nonempty, rows, untested, verdict

from dml.runs.results import Run
from dml.runs.writers import Row
from studies.averaging.printed import OURS

ROUNDING = 0.051  # rounds: the printed table has one digit
SAME_NUMBERS = ("all_reduce", "gossip", "sgp", "random_groups")  # seeds are published
SEATS = 1.5  # rounds by which Moshpit may differ: its seats have no seed
DEVIATIONS = 4  # standard errors or deviations
MOST = 50  # rounds of the printed table
PUBLISHED_SGP = {512: 47.6, 768: 43.2, 900: 45.0}
NEAR = 0.25  # relative, of rounds that count as equal
EXACT = 1e-25  # variance that is rounding


def printed(run: Run) -> dict[tuple[int, float], dict[str, Row]]:
    """Return the rows of the printed table by peers and absence, and by method."""
    table: dict[tuple[int, float], dict[str, Row]] = {}
    for row in rows(run, table="printed"):
        key = row["peers"], row["absence"]
        table.setdefault(key, {})[row["method"]] = row
    return table


def restarts(run: Run) -> str:
    return f"{run.flags['restarts']} restarts"


@claim("groups take the fewest rounds, gossip the most", "table 1 of the notebook")
def order(run: Run) -> Verdict:
    """Both kinds of groups take fewer rounds to 1e-9 than SGP, and SGP than gossip.

    If peers are absent, all-reduce takes more rounds than both kinds of groups, too.
    """
    holds, texts = [], []
    for (peers, absence), methods in printed(run).items():
        taken = {name: row["rounds_1e-9"] for name, row in methods.items()}
        groups = max(taken["random_groups"], taken["moshpit"])
        holds.append(groups < taken["sgp"] < taken["gossip"])
        holds.append(not absence or groups < taken["all_reduce"])
        texts.append(
            f"N = {peers}, {absence:g}: {groups:.1f}, {taken['sgp']:.1f}, "
            f"{taken['gossip']:.1f}"
        )
    return verdict(
        all(holds), "; ".join(texts), f"groups, SGP, gossip; {restarts(run)}"
    )


@claim("the printed rounds", "30 numbers, such as SGP 47.6, Moshpit 8.2 at 512")
def reproduced(run: Run) -> Verdict:
    """Rounds to 1e-9 with the notebook's seeds are the printed ones.

    Those of Moshpit, whose seats have no seed, are within 1.5 rounds.
    """
    pairs = [
        (row["method"], abs(row["rounds_1e-9"] - row["published_1e-9"]))
        for row in rows(run, table="printed")
        if row["published_1e-9"] is not None
    ]
    exact = [gap for name, gap in nonempty(pairs, "rows") if name in SAME_NUMBERS]
    seats = [gap for name, gap in pairs if name not in SAME_NUMBERS]
    measured = (
        f"{sum(gap <= ROUNDING for gap in exact)} of {len(exact)} equal, Moshpit "
        f"within {max(seats):.1f}"
    )
    if run.flags["restarts"] != 10:
        return untested("the printed table has 10 restarts", measured)
    holds = max(exact) <= ROUNDING and max(seats) <= SEATS
    return verdict(holds, measured, restarts(run))


def sgp(run: Run, powers: bool) -> tuple[dict[int, float], str]:
    """Return the rounds of the one-peer exponential graph, and their text."""
    by_peers = {
        peers: methods[OURS]["rounds_1e-9"]
        for (peers, absence), methods in printed(run).items()
        if peers in PUBLISHED_SGP
        and not absence
        and (not peers & (peers - 1)) == powers
    }
    text = ", ".join(
        f"{taken:.1f} at {peers} (published {PUBLISHED_SGP[peers]})"
        for peers, taken in by_peers.items()
    )
    return nonempty(by_peers, "peers"), text


@claim("SGP takes 47.6 rounds to 1e-9 at 512 peers", "47.6")
def sgp_power(run: Run) -> Verdict:
    """Push-sum on the one-peer exponential graph takes 47.6 rounds, up to 25 %.

    The row of the table mixes thirds over two shifts. The graph of SGP has halves over
    one shift, which are exact after lg N rounds.
    """
    by_peers, text = sgp(run, powers=True)
    return judge_sgp(by_peers, text, restarts(run))


@claim("SGP takes over 40 rounds at 768 and 900 peers", "43.2, 45.0")
def sgp_other(run: Run) -> Verdict:
    """Push-sum on the one-peer exponential graph takes these rounds, up to 25 %."""
    by_peers, text = sgp(run, powers=False)
    return judge_sgp(by_peers, text, restarts(run))


def judge_sgp(by_peers: dict[int, float], text: str, reason: str) -> Verdict:
    near = [abs(n / PUBLISHED_SGP[peers] - 1) <= NEAR for peers, n in by_peers.items()]
    return verdict(all(near), text, f"halves over one shift, {reason}")


def contractions(run: Run, key: str) -> Verdict:
    """Judge whether measured contractions are those of a formula."""
    measured = rows(run, table="contractions", kind="chosen")
    away = [abs(row["measured"] - row[key]) / row["error"] for row in measured]
    text = ", ".join(
        f"{row['measured']:.4f} ± {row['error']:.4f} and {row[key]:.4f}"
        for row in measured
    )
    reason = ", ".join(f"{row['peers']} in {row['groups']}" for row in measured)
    return verdict(max(away) <= DEVIATIONS, text, f"peers in groups: {reason}")


@claim("random groups contract by (g-1)/N + g/N^2", "a formula")
def published_contraction(run: Run) -> Verdict:
    """Contractions are those of the formula if each peer chooses its group at random.

    The tolerance is 4 standard errors. Groups may be empty.
    """
    return contractions(run, "published")


@claim("random groups contract by (g(1-(1-1/g)^N)-1)/(N-1)", "our exact formula")
def exact_contraction(run: Run) -> Verdict:
    """Contractions are those of the formula if each peer chooses its group at random.

    The tolerance is 4 standard errors.
    """
    return contractions(run, "exact")


@claim("a full grid is exact after a round for each axis", "M^d peers: d rounds")
def grid(run: Run) -> Verdict:
    """Without absent peers the variance is 1e-25 at most after the last axis.

    Before it, the variance is that of the exact formula, up to 4 standard deviations of
    the variance of as many normal values as there are different means.
    """
    steps = matching(rows(run, table="teapots"), absence=0.0)
    last = nonempty(steps, "absence 0")[-1]
    away = [
        abs(row["variance"] / row["exact"] - 1)
        / math.sqrt(2 / (row["exact"] * (row["peers"] - 1)) / row["restarts"])
        for row in steps[1:-1]
    ]
    far = max(away, default=0.0)
    measured = f"{last['variance']:.0e} after {last['round']} rounds"
    reason = f"{last['peers']:,} peers, before {far:.1f} deviations from the formula"
    holds = last["variance"] <= EXACT and far <= DEVIATIONS
    return verdict(holds, measured, reason)


CLAIMS = (
    order,
    reproduced,
    sgp_power,
    sgp_other,
    published_contraction,
    exact_contraction,
    grid,
)
