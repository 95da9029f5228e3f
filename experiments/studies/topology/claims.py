"""Claims on all-reduces and networks, judged by runs of topology.py and allreduce.py.

Patarasuk & Yuan, JPDC 2009 (rings); Besta & Hoefler, SC 2014 (Slim Fly); Jiang et al.,
OSDI 2020 (BytePS).
"""

from collections.abc import Callable
from itertools import pairwise

from lab.claims import Verdict, claim, rows, untested, verdict
import numpy as np

from dml.runs.results import Run
from dml.runs.writers import Row

FABRICS = ("torus", "fat_tree", "dragonfly", "slim_fly")  # compared by routers and cost
LARGE = 1 << 26  # bytes of a buffer whose time is hardly latency
MAX_GROWTH = 1.15  # of a ring's time, by (p - 1)/p and latency
# Published ratios of Slim Fly to a fat tree, per rank.
ROUTER_RATIO, PRICE_RATIO = 0.5, 0.75
ABOUT_TOLERANCE = 0.1  # relative, of ratios published as "about"
TIME_TOLERANCE = 1e-6  # relative, of BytePS's time: rounding
LENGTH_TOLERANCE = 1e-3  # relative: lengths are rounded to even pieces


def uniform(run: Run) -> dict[int, dict[int, Row]]:
    """Return the times on the uniform network by number of ranks and by bytes."""
    by_size: dict[int, dict[int, Row]] = {}
    times = rows(run, table="race", network="uniform")
    for row in sorted(times, key=lambda row: (row["p"], row["bytes"])):
        by_size.setdefault(row["p"], {})[row["bytes"]] = row
    return by_size


@claim("a ring's time is independent of p for large n", "theorem")
def flat(run: Run) -> Verdict:
    """With the most ranks a ring takes at most 1.15 times as long as with the fewest.

    The buffer is the largest one, of 64 MB or more, since the time includes the latency
    of 2(p - 1) messages.
    """
    times = uniform(run)
    most = max(set.intersection(*map(set, times.values())))
    few, many = min(times), max(times)
    if few == many:
        return untested("one number of ranks was tried")
    first, last = (times[p][most]["ring_seconds"] for p in (few, many))
    measured = f"{1e3 * first:.1f} ms at p = {few}, {1e3 * last:.1f} at {many}"
    reason = f"{last / first:.2f} times, {most / 2**20:g} MB"
    if most < LARGE:
        return untested(f"{reason}: no large buffer", measured)
    return verdict(last / first <= MAX_GROWTH, measured, reason)


@claim("butterfly wins below the crossover", "theorem")
def crossed(run: Run) -> Verdict:
    """For every p butterfly is faster for the smallest buffer, ring for the largest."""
    ratios = {
        p: [row["ring_seconds"] / row["butterfly_seconds"] for row in times.values()]
        for p, times in uniform(run).items()
    }
    holds = all(by_bytes[0] > 1 > by_bytes[-1] for by_bytes in ratios.values())
    measured = ", ".join(
        f"p = {p}: {by_bytes[0]:.2f} to {by_bytes[-1]:.2f}"
        for p, by_bytes in ratios.items()
    )
    return verdict(
        holds, f"ring / butterfly {measured}", "required: above 1, then below"
    )


@claim("a ring sends the minimum", "2(p - 1)/p n per rank")
def optimal(run: Run) -> Verdict:
    """A ring of n words sends exactly 2(p - 1)n words, which is the least possible."""
    p = run.summary["p"]
    itemsize = np.dtype(run.flags["dtype"]).itemsize
    rings = rows(run, algorithm="ring")
    sent = {row["bytes"] // itemsize: row["words_sent"] for row in rings}
    if run.flags["check"]:
        return untested("--check sends words, too", f"{sent}")
    holds = all(words == 2 * (p - 1) * n for n, words in sent.items())
    measured = ", ".join(f"{words:,} of {n:,}" for n, words in sent.items())
    return verdict(holds, f"words sent: {measured}", f"p = {p}")


def networks(run: Run) -> dict[str, Row]:
    """Return the row of each fabric for the most ranks, by name."""
    network_rows = rows(run, table="networks")
    most = max(row["p"] for row in network_rows)
    return {
        row["network"]: row
        for row in network_rows
        if row["p"] == most and row["network"].partition(":")[0] in FABRICS
    }


@claim("its diameter is 2", "2")
def diameter(run: Run) -> Verdict:
    """The diameter of Slim Fly is 2, and those of other networks are larger."""
    diameters = {name: row["diameter"] for name, row in networks(run).items()}
    others = [hops for name, hops in diameters.items() if name != "slim_fly"]
    measured = ", ".join(f"{name} {hops}" for name, hops in diameters.items())
    return verdict(
        diameters["slim_fly"] == 2 < min(others), measured, "hops between routers"
    )


@claim("fewer routers than a fat tree", "about 50 %")
def routers(run: Run) -> Verdict:
    """Slim Fly has at most 1.1 times 50 % of the routers per rank of a fat tree."""
    return judge_ratio(run, lambda row: row["routers"] / row["ranks"], ROUTER_RATIO)


@claim("cheaper than a fat tree", "about 25 %")
def price(run: Run) -> Verdict:
    """Slim Fly costs at most 1.1 times 75 % of a fat tree per rank."""
    return judge_ratio(run, lambda row: row["cost_per_rank"], PRICE_RATIO)


def judge_ratio(run: Run, measure: Callable[[Row], float], published: float) -> Verdict:
    """Judge the ratio of Slim Fly to a fat tree in a measure of their rows."""
    by_name = networks(run)
    ratio = measure(by_name["slim_fly"]) / measure(by_name["fat_tree"])
    p = by_name["slim_fly"]["p"]
    measured = f"{ratio:.2f} of a fat tree's per rank, p = {p:,}"
    most = published * (1 + ABOUT_TOLERANCE)
    return verdict(ratio <= most, measured, f"required {most:.3g} at most")


@claim("a cheaper latency-bound all-reduce", "fewer hops")
def few_bytes(run: Run) -> Verdict:
    """With the smallest buffer no network has a faster all-reduce than Slim Fly."""
    by_name, race = networks(run), rows(run, table="race")
    p = by_name["slim_fly"]["p"]
    few = min(row["bytes"] for row in race if row["p"] == p)
    times = {
        row["network"]: row["seconds"]
        for row in race
        if (row["p"], row["bytes"]) == (p, few) and row["network"] in by_name
    }
    first = min(times, key=lambda name: times[name])
    measured = ", ".join(
        f"{name} {1e6 * seconds:.1f} us" for name, seconds in times.items()
    )
    reason = f"{first} is the fastest at {few:,} bytes"
    return verdict(first == "slim_fly", measured, reason)


@claim("t = 2n(n-1)M/((n^2+kn-2k)B)", "formula")
def formula(run: Run) -> Verdict:
    """Virtual ranks take the time of the formula and of draining the pipeline, to 1e-6.

    With spare hosts draining takes 1/S of the formula, for S stages of the pipeline.
    """
    hosts = byteps(run)
    error = max(
        abs(row["bandwidth_seconds"] / row["paper_seconds"] / row["drained"] - 1)
        for row in hosts
    )
    drain = max(row["drained"] for row in hosts) - 1
    measured = f"relative error {error:.0e}, drain {drain:.1%} of the time"
    reason = f"required {TIME_TOLERANCE:g}, for k = 0 ... {hosts[-1]['k']}"
    return verdict(error <= TIME_TOLERANCE, measured, reason)


@claim("spare hosts: from a ring to a parameter server", "formula")
def interpolates(run: Run) -> Verdict:
    """Every spare host shortens the time, from a ring to a parameter server.

    Without draining, k = n takes n/(2(n - 1)) of the time of k = 0, to 0.1 %.
    """
    hosts = byteps(run)
    times = [row["bandwidth_seconds"] / row["drained"] for row in hosts]
    falls = all(after < before for before, after in pairwise(times))
    n = hosts[0]["n"]
    ratio = times[-1] / times[0]
    predicted = n / (2 * (n - 1))
    equal = abs(ratio / predicted - 1) <= LENGTH_TOLERANCE
    holds = falls and hosts[-1]["k"] == n and equal
    measured = f"{ratio:.4f} of a ring's time at k = {n}"
    return verdict(holds, measured, f"required {predicted:.4f}")


def byteps(run: Run) -> list[Row]:
    """Return the rows of BytePS by the number of spare hosts."""
    return sorted(rows(run, table="byteps"), key=lambda row: row["k"])


CLAIMS = (flat, crossed, diameter, routers, price, few_bytes, formula, interpolates)
