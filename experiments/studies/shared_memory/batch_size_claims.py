"""Claims of Yin et al., Gradient Diversity, 2018, judged by a run of batch_size.py.

If no batch above B0 reaches the target, its steps are unknown and the claim on them is
not testable.
"""

import math
from collections.abc import Sequence

from lab.claims import Verdict, claim, grouped, nonempty, untested, verdict

from dml.runs.results import Run
from dml.runs.writers import Row

NEAR = 4.0  # B0 agrees with the bound within this factor
WORTH = 2.0  # an efficient batch needs at most this multiple of batch 1's examples


def knee(rows: Sequence[Row]) -> int | None:
    """Return B0, the last batch that takes at most twice the examples of batch 1.

    All smaller batches take at most as many; None if batch 1 misses the target.
    """
    first, last = rows[0]["examples"], None
    for row in rows if first else ():
        if not row["examples"] or row["examples"] > WORTH * first:
            break
        last = row["batch"]
    return last


@claim("a batch helps up to the gradients' diversity", "theorem")
def bounded(run: Run) -> Verdict:
    """B0 is within a factor of 4 of the gradients' diversity, on all data.

    B0 is the last batch that takes at most twice the examples that single ones take.
    """
    texts, ratios = [], []
    for name, rows in nonempty(grouped(run.rows, "data"), "data").items():
        at, bound = knee(rows), rows[0]["bound_least"]
        ratios.append(at / bound if at else math.inf)
        texts.append(f"{name}: B0 = {at or 'none'}, diversity {bound:.0f}")
    holds = all(1 / NEAR <= ratio <= NEAR for ratio in ratios)
    return verdict(holds, "; ".join(texts), f"asked a factor of {NEAR:g}")


@claim("beyond it there is no speed-up in steps", "theorem")
def beyond(run: Run) -> Verdict:
    """From B0 to k times B0, steps fall by less than the root of k, on all data."""
    texts, holds = [], []
    for name, rows in nonempty(grouped(run.rows, "data"), "data").items():
        at = knee(rows)
        more = [row for row in rows if at and row["batch"] > at and row["steps"]]
        if not at or not more:
            return untested("no batch beyond B0 was tried", f"{name}: B0 = {at}")
        steps = next(row["steps"] for row in rows if row["batch"] == at)
        gain = steps / min(row["steps"] for row in more)
        times = rows[-1]["batch"] / at
        holds.append(gain < math.sqrt(times))
        texts.append(f"{name}: {gain:.2f} times fewer for {times:g} times the batch")
    return verdict(all(holds), "; ".join(texts), "asked less than the root")


@claim("repeated examples leave less", "theorem")
def repeated(run: Run) -> Verdict:
    """B0 of data with repeated examples is less than B0 of data without."""
    knees = {name: knee(rows) for name, rows in grouped(run.rows, "data").items()}
    few, many = knees["repeated"], knees["diverse"]
    holds = few is not None and many is not None and few < many
    return verdict(holds, f"{few} and {many}", "as diversity says")


CLAIMS = (bounded, beyond, repeated)
