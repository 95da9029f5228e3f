"""Claims on all-reduces for tori and for groups of routers, judged by topology.py.

De Sensi et al., Swing, NSDI 2024; De Sensi et al., Bine Trees, SC 2025; Jürß et al.,
Trivance, 2026.
"""

from lab.claims import Verdict, claim, rows, untested, verdict

from dml.runs.results import Run
from dml.runs.writers import Row
from studies.allreduce.rows import size_text

KNOWN = ("ring", "butterfly", "halving_doubling", "torus")  # Swing is compared with
LARGEST = 128 << 20  # bytes of a buffer for which Swing is claimed to be the fastest
SPEEDUP = 3.0  # of Swing over the best known one, at most
MIDDLE = 8 << 20  # bytes up to which Trivance is claimed to be the best
BETTER = 1.05  # of Trivance, at least
SAVED = {"dragonfly": 0.155, "fat_tree": 0.163}  # published medians on two machines
ABOUT = 0.1  # relative tolerance of a published median
MOST_SAVED = 1 / 3
WORSE = 0.13  # published share of jobs with more traffic


def torus_rows(run: Run) -> list[Row]:
    """Return the times on the torus with the most ranks, by bytes."""
    found = [row for row in rows(run, table="race") if row["network"][:5] == "torus"]
    most = max(row["p"] for row in found)
    return sorted((row for row in found if row["p"] == most), key=lambda r: r["bytes"])


def gains(run: Run, name: str, known: tuple[str, ...]) -> dict[int, float]:
    """Return the least seconds of known all-reduces over those of one, by bytes."""
    return {
        row["bytes"]: min(row[f"{one}_seconds"] for one in known)
        / row[f"{name}_seconds"]
        for row in torus_rows(run)
    }


def listed(values: dict[int, float]) -> str:
    """Return gains as text."""
    return ", ".join(f"{size_text(n)} {gain:.3f}" for n, gain in values.items())


@claim("fastest on tori, 32 B to 128 MB", "up to 3 times")
def swing_fastest(run: Run) -> Verdict:
    """Up to 128 MB Swing is faster than ring, butterfly, halving-doubling and torus."""
    found = {n: gain for n, gain in gains(run, "swing", KNOWN).items() if n <= LARGEST}
    reason = f"fastest of {', '.join(KNOWN)} / Swing, one port a rank"
    return verdict(min(found.values()) > 1, listed(found), reason)


@claim("faster than halving-doubling on tori", "fewer hops, less congestion")
def swing_over_halving(run: Run) -> Verdict:
    """On the torus Swing is faster than halving-doubling for every buffer."""
    found = gains(run, "swing", ("halving_doubling",))
    return verdict(min(found.values()) > 1, listed(found), "halving-doubling / Swing")


@claim("bandwidth-optimal", "2(p - 1)/p n per rank")
def trivance_words(run: Run) -> Verdict:
    """The ranks send exactly 2(p - 1) buffers in total, which is the least possible."""
    found = torus_rows(run)
    sent = {row["bytes"]: row["trivance_words"] * 4 / row["bytes"] for row in found}
    p = found[0]["p"]
    holds = all(buffers == 2 * (p - 1) for buffers in sent.values())
    measured = ", ".join(f"{buffers:g}" for buffers in sent.values())
    return verdict(holds, f"{measured} buffers", f"required {2 * (p - 1)}, p = {p}")


@claim("better than the state of the art on tori up to 8 MB", "5 to 30 %")
def trivance_better(run: Run) -> Verdict:
    """Up to 8 MB Trivance is at least 1.05 times as fast as Swing, the ring and torus.

    A rank of the model has one port: the two messages of a step follow each other.
    """
    known = ("swing", "ring", "torus")
    found = {
        n: gain for n, gain in gains(run, "trivance", known).items() if n <= MIDDLE
    }
    if not found:
        return untested("no buffer of 8 MB or less")
    reason = f"fastest of {', '.join(known)} / Trivance, one port a rank"
    return verdict(min(found.values()) >= BETTER, listed(found), reason)


def jobs(run: Run) -> dict[str, list[Row]]:
    """Return Bine's rows for long buffers on random places, by network."""
    found = rows(run, table="allocations", algorithm="swing")
    return {
        name: [row for row in found if row["network"].partition(":")[0] == name]
        for name in SAVED
    }


@claim("less traffic between groups", "median 15.5 and 16.3 % on two machines")
def bine_saves(run: Run) -> Verdict:
    """The median saving on each network, averaged over p, is 0.9 of published or more.

    Jobs have random places; the all-reduce is Bine's for long buffers, as Swing's,
    compared with halving-doubling.
    """
    found = {
        name: sum(row["saved"] for row in group) / len(group)
        for name, group in jobs(run).items()
    }
    holds = all(found[name] >= (1 - ABOUT) * SAVED[name] for name in SAVED)
    measured = ", ".join(f"{name} {saved:.1%}" for name, saved in found.items())
    return verdict(holds, measured, allocations_text(run))


@claim("at most a third less", "up to 33 %")
def bine_at_most(run: Run) -> Verdict:
    """No job sends more than a third less between groups, and some job sends less."""
    most = max(row["most_saved"] for group in jobs(run).values() for row in group)
    return verdict(0 < most <= MOST_SAVED, f"{most:.1%}", allocations_text(run))


@claim("few jobs send more", "13 % of the jobs")
def bine_worse(run: Run) -> Verdict:
    """At most 13 % of the jobs on each network send more between groups."""
    found = {
        name: max(row["worse"] for row in group) for name, group in jobs(run).items()
    }
    measured = ", ".join(f"{name} {share:.1%}" for name, share in found.items())
    holds = max(found.values()) <= WORSE
    return verdict(holds, measured, f"{allocations_text(run)}, the worst p")


@claim("faster on groups of routers", "up to 5 times")
def bine_faster(run: Run) -> Verdict:
    """For every buffer the median job takes less time than with halving-doubling."""
    found = [row for group in jobs(run).values() for row in group]
    measured = ", ".join(
        f"{row['network']} p = {row['p']} {size_text(row['bytes'])} {row['gain']:.2f}"
        for row in found
    )
    least = min(row["gain"] for row in found)
    return verdict(least > 1, measured, "halving-doubling / Bine")


def allocations_text(run: Run) -> str:
    """Return the number of jobs and of ranks as text."""
    found = [row for group in jobs(run).values() for row in group]
    sizes = sorted({row["p"] for row in found})
    return f"{found[0]['allocations']} jobs of {' and '.join(map(str, sizes))} ranks"


SWING = swing_fastest, swing_over_halving
TRIVANCE = trivance_words, trivance_better
BINE = bine_saves, bine_at_most, bine_worse, bine_faster
