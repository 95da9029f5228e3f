"""Claims of Jiang et al., BytePS, OSDI 2020, and of Luo et al., Parameter Hub, SoCC
2018, judged by byteps.py on real ranks.
"""

from itertools import pairwise

from lab.claims import Verdict, claim, grouped, matching, nonempty, rows, verdict

from dml.runs.results import Run
from dml.runs.writers import Row

TOLERANCE = 0.1  # relative, of measured seconds
HUB_BYTES = 1 << 22  # size of the parameters of the claims on Parameter Hub
SPEEDUP, RAW_SHARE = 1.5, 0.7
HUB_CHUNK_KB = 32  # the published size of a chunk


@claim("t = 2n(n-1)M/((n^2+kn-2k)B) on processes", "formula")
def measured_formula(run: Run) -> Verdict:
    """On throttled ports the median is within 10 % of the formula, for every n and k.

    All workers have the bits of a serial sum.
    """
    exchanges = throttled(run)
    worst = max((row["ratio"] - 1 for row in exchanges), key=abs)
    exact = all(row["exact"] for row in exchanges)
    measured = f"{worst:+.1%} at most"
    reason = f"{len(exchanges)} pairs of n and k, {'' if exact else 'not '}equal bits"
    return verdict(abs(worst) <= TOLERANCE and exact, measured, reason)


@claim("spare processes shorten an all-reduce", "formula")
def measured_order(run: Run) -> Verdict:
    """Every spare rank shortens the median if n is 3 or more.

    With 2 workers the formula is M/B for every k.
    """
    groups = grouped(throttled(run), "n")
    series = nonempty({n: by_k for n, by_k in groups.items() if n > 2}, "n > 2")
    times = {
        n: [row["seconds"] for row in sorted(by_k, key=lambda row: row["k"])]
        for n, by_k in series.items()
    }
    steps = [pair for by_k in times.values() for pair in pairwise(by_k)]
    nonempty(steps, "two numbers of spare ranks")
    measured = "; ".join(
        f"n = {n}: {', '.join(f'{1e3 * t:.0f}' for t in by_k)} ms"
        for n, by_k in times.items()
    )
    holds = all(after < before for before, after in steps)
    return verdict(holds, measured, "by the number of spare ranks")


def throttled(run: Run) -> list[Row]:
    """Return the rows of throttled ports."""
    return rows(run, table="spares", links="throttled")


@claim("a fused update of chunks", "1.5 times at least")
def fused_speedup(run: Run) -> Verdict:
    """Fused updates of 4 MB by 2 ranks are 1.5 times as fast as separate passes.

    Both read and write shared memory between the same barriers: only fusion differs.
    The passes are compiled: a copy of a gradient, a sum, Adam and a copy of the
    parameters. The bits are equal. The reason names the speed-ups of the passes over
    chunks of 32 KB, and of the fused update over passes and messages.
    """
    row = hub(run)
    chunked = row["passes_seconds"] / row["chunks_seconds"]
    reason = f"required {SPEEDUP:g}; {chunked:.2f} times by chunks in cache"
    reason += f"; {row['speedup']:.2f} times separate messages"
    reason += f"; {'' if row['exact'] else 'not '}equal bits"
    holds = row["fusion"] >= SPEEDUP and row["exact"]
    return verdict(holds, f"{row['fusion']:.2f} times", reason)


@claim("the update takes little longer than messages of its bytes", "70 % at least")
def fused_share(run: Run) -> Verdict:
    """A Sendrecv of 4 MB by 2 ranks takes 70 % or more of a fused update."""
    share = hub(run)["raw_share"]
    return verdict(share >= RAW_SHARE, f"{share:.0%}", f"required {RAW_SHARE:.0%}")


@claim("the update takes little longer than copies of its bytes", "70 % at least")
def fused_copy_share(run: Run) -> Verdict:
    """Copies of the same bytes in shared memory take 70 % or more of a fused update.

    An update of 4 MB by 2 ranks loads 6 vectors into the cache of a core, the copies
    load 4, and both are limited by these loads: 67 % is expected at equal bandwidth.
    """
    share = hub(run)["copy_share"]
    reason = f"required {RAW_SHARE:.0%}; 67% by the bytes of the vectors"
    return verdict(share >= RAW_SHARE, f"{share:.0%}", reason)


def hub(run: Run) -> Row:
    """Return the row of 2 ranks, 4 MB and the published size of a chunk."""
    cells = matching(
        rows(run, table="hub"), p=2, bytes=HUB_BYTES, chunk_kb=HUB_CHUNK_KB
    )
    return nonempty(cells, "hub of 2 ranks and 4 MB")[0]


BYTEPS = (measured_formula, measured_order)
PHUB = (fused_speedup, fused_share, fused_copy_share)
CLAIMS = (*BYTEPS, *PHUB)
