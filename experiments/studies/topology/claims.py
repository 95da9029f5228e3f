"""Claims on all-reduces and networks, judged by runs of topology.py and allreduce.py.

Patarasuk & Yuan, JPDC 2009 (rings); Besta & Hoefler, SC 2014 (Slim Fly); Jiang et al.,
OSDI 2020 (BytePS).
"""

from collections.abc import Callable

import numpy as np
from lab.claims import Verdict, claim, rows, untested, verdict

from dml.runs.results import Run
from dml.runs.writers import Row

FABRICS = ("torus", "fat_tree", "dragonfly", "slim_fly")  # compared by routers and cost
LARGE = 1 << 26  # bytes of a buffer whose time is hardly latency
GROWS = 1.15  # most growth of a ring's time: (p - 1)/p, and latency
ROUTERS, PRICE = 0.5, 0.75  # published shares of a fat tree's, per rank
ABOUT = 0.1  # relative tolerance of shares published as "about"
PAPER = 1e-6  # relative tolerance of BytePS's time: rounding
CUT = 1e-3  # relative tolerance: lengths are rounded to even pieces


def uniform(run: Run) -> dict[int, dict[int, Row]]:
    """Return the times on the uniform network by number of ranks and by bytes."""
    by_size: dict[int, dict[int, Row]] = {}
    times = rows(run, table="race", network="uniform")
    for row in sorted(times, key=lambda row: (row["p"], row["bytes"])):
        by_size.setdefault(row["p"], {})[row["bytes"]] = row
    return by_size


@claim("a ring's time is independent of p for large n", "theorem")
def flat(run: Run) -> Verdict:
    """Of the most bytes, a ring of the most ranks takes at most 1.15 of the fewest's.

    The time includes the latency of 2(p - 1) messages: 64 MB or more are asked.
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
    return verdict(last / first <= GROWS, measured, reason)


@claim("butterfly wins below the crossover", "theorem")
def crossed(run: Run) -> Verdict:
    """For every p butterfly is faster on the fewest bytes, the ring on the most."""
    ratios = {
        p: [row["ring_seconds"] / row["butterfly_seconds"] for row in times.values()]
        for p, times in uniform(run).items()
    }
    holds = all(one[0] > 1 > one[-1] for one in ratios.values())
    measured = ", ".join(
        f"p = {p}: {r[0]:.2f} to {r[-1]:.2f}" for p, r in ratios.items()
    )
    return verdict(holds, f"ring / butterfly {measured}", "asked above 1, then below")


@claim("a ring sends the least there is", "2(p - 1)/p n a rank")
def optimal(run: Run) -> Verdict:
    """A ring of n words sends exactly 2(p - 1)n words, which is the least possible."""
    p, word = run.summary["p"], np.dtype(run.flags["dtype"]).itemsize
    rings = rows(run, algorithm="ring")
    sent = {row["bytes"] // word: row["words_sent"] for row in rings}
    if run.flags["check"]:
        return untested("--check sends words, too", f"{sent}")
    holds = all(words == 2 * (p - 1) * n for n, words in sent.items())
    measured = ", ".join(f"{words:,} of {n:,}" for n, words in sent.items())
    return verdict(holds, f"words sent: {measured}", f"p = {p}")


def networks(run: Run) -> dict[str, Row]:
    """Return the parts of each fabric for the most ranks, by name."""
    built = rows(run, table="networks")
    most = max(row["p"] for row in built)
    return {
        row["network"]: row
        for row in built
        if row["p"] == most and row["network"].partition(":")[0] in FABRICS
    }


@claim("its diameter is 2", "2")
def diameter(run: Run) -> Verdict:
    """Slim Fly's diameter is 2, and no other network's is as small."""
    diameters = {name: row["diameter"] for name, row in networks(run).items()}
    others = [hops for name, hops in diameters.items() if name != "slim_fly"]
    measured = ", ".join(f"{name} {hops}" for name, hops in diameters.items())
    return verdict(
        diameters["slim_fly"] == 2 < min(others), measured, "hops between routers"
    )


@claim("fewer routers than a fat tree", "about 50 % [M]")
def routers(run: Run) -> Verdict:
    """Slim Fly has at most 50 % of a fat tree's routers a rank, or 10 % more."""
    return to_fat_tree(run, lambda row: row["routers"] / row["ranks"], ROUTERS)


@claim("cheaper than a fat tree", "about 25 % [M]")
def price(run: Run) -> Verdict:
    """Slim Fly costs at most 75 % of a fat tree a rank, or 10 % more."""
    return to_fat_tree(run, lambda row: row["cost_a_rank"], PRICE)


def to_fat_tree(run: Run, number: Callable[[Row], float], published: float) -> Verdict:
    """Judge a number of Slim Fly by its ratio to a fat tree's."""
    found = networks(run)
    ratio = number(found["slim_fly"]) / number(found["fat_tree"])
    measured = f"{ratio:.2f} of a fat tree's a rank, p = {found['slim_fly']['p']:,}"
    most = published * (1 + ABOUT)
    return verdict(ratio <= most, measured, f"asked {most:.3g} at most")


@claim("a cheaper latency-bound all-reduce", "fewer hops")
def few_bytes(run: Run) -> Verdict:
    """On few bytes no network's fastest all-reduce is faster than Slim Fly's."""
    built, times = networks(run), rows(run, table="race")
    p = built["slim_fly"]["p"]
    few = min(row["bytes"] for row in times if row["p"] == p)
    times = {
        row["network"]: row["seconds"]
        for row in times
        if (row["p"], row["bytes"]) == (p, few)
    }
    times = {name: seconds for name, seconds in times.items() if name in built}
    first = min(times, key=lambda name: times[name])
    measured = ", ".join(f"{name} {1e6 * one:.1f} us" for name, one in times.items())
    return verdict(
        first == "slim_fly", measured, f"{first} is the fastest at {few:,} bytes"
    )


@claim("t = 2n(n-1)M/((n^2+kn-2k)B)", "formula")
def formula(run: Run) -> Verdict:
    """Running ranks take the paper's time, to 1e-6, but for the pipeline's drain.

    With spare hosts that is 1 + 1/S of it, where S is the number of its stages.
    """
    hosts = byteps(run)
    off = max(
        abs(row["bandwidth_seconds"] / row["paper_seconds"] / row["drained"] - 1)
        for row in hosts
    )
    drained = max(row["drained"] for row in hosts) - 1
    measured = f"off by {off:.0e}, {drained:.1%} of drain"
    return verdict(
        off <= PAPER, measured, f"asked {PAPER:g}, for k = 0 ... {hosts[-1]['k']}"
    )


@claim("spare hosts: from ring to PS", "formula")
def interpolates(run: Run) -> Verdict:
    """Every spare host makes it faster: from a ring's time to a parameter server's.

    k = n takes n/(2(n - 1)) of k = 0, but for the drain, to 0.1 %.
    """
    hosts = byteps(run)
    times = [row["bandwidth_seconds"] / row["drained"] for row in hosts]
    falls = all(b < a for a, b in zip(times, times[1:], strict=False))
    n, share = hosts[0]["n"], times[-1] / times[0]
    wanted = n / (2 * (n - 1))
    holds = falls and hosts[-1]["k"] == n and abs(share / wanted - 1) <= CUT
    return verdict(holds, f"{share:.4f} of a ring's at k = {n}", f"asked {wanted:.4f}")


def byteps(run: Run) -> list[Row]:
    """Return the rows of BytePS by the number of spare hosts."""
    return sorted(rows(run, table="byteps"), key=lambda row: row["k"])


CLAIMS = (flat, crossed, diameter, routers, price, few_bytes, formula, interpolates)
