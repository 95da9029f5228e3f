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
    """Fused updates of 4 MB by 2 ranks, in chunks of 32 KB, are 1.5 times as fast.

    The comparison is an exchange of all gradients by messages, a compiled sum, a
    compiled Adam and an exchange of all parameters. The bits are equal. The reason
    names the speed-up with one chunk, which shared memory alone gives.
    """
    row = hub(run, HUB_CHUNK_KB)
    one_chunk = hub(run, HUB_BYTES / 1024)
    measured = f"{row['speedup']:.2f} times"
    reason = f"required {SPEEDUP:g}; one chunk {one_chunk['speedup']:.2f} times"
    reason += f"; {'' if row['exact'] else 'not '}equal bits"
    return verdict(row["speedup"] >= SPEEDUP and row["exact"], measured, reason)


@claim("the update costs little more than the exchange", "70 % at least")
def fused_share(run: Run) -> Verdict:
    """A raw exchange of 4 MB by 2 ranks takes 70 % or more of a fused update."""
    share = hub(run, HUB_CHUNK_KB)["raw_share"]
    return verdict(share >= RAW_SHARE, f"{share:.0%}", f"required {RAW_SHARE:.0%}")


def hub(run: Run, chunk_kb: float) -> Row:
    """Return the row of 2 ranks, 4 MB and a size of chunks."""
    cells = matching(rows(run, table="hub"), p=2, bytes=HUB_BYTES, chunk_kb=chunk_kb)
    return nonempty(cells, "hub of 2 ranks and 4 MB")[0]


BYTEPS = (measured_formula, measured_order)
PHUB = (fused_speedup, fused_share)
CLAIMS = (*BYTEPS, *PHUB)
