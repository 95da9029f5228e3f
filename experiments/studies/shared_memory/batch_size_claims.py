"""Claims of Yin et al., Gradient Diversity, 2018, judged by a run of batch_size.py.

B0 is the largest efficient batch size, see `efficient_batch`. If no larger batch
reaches the target, the claim on its steps is not testable.
"""

import math
from collections.abc import Sequence

from lab.claims import Verdict, claim, grouped, nonempty, untested, verdict

from dml.runs.results import Run
from dml.runs.writers import Row

BOUND_FACTOR = 4.0  # B0 agrees with the bound within this factor
MAX_RATIO = 2.0  # an efficient batch needs at most this multiple of batch 1's examples


def efficient_batch(rows: Sequence[Row]) -> int | None:
    """Return B0: up to B0 every batch takes at most twice the examples of batch 1.

    rows: rows of one data set in ascending order of the batch size, the first of 1.

    Return None if batch 1 misses the target.
    """
    first = rows[0]["examples"]
    if not first:
        return None
    batch = None
    for row in rows:
        if not row["examples"] or row["examples"] > MAX_RATIO * first:
            break
        batch = row["batch"]
    return batch


@claim("larger batches are efficient up to the gradient diversity", "theorem")
def bounded(run: Run) -> Verdict:
    """B0 is within a factor of 4 of the gradient diversity, on all data.

    B0 is the last batch size that takes at most twice the examples of batch size 1.
    """
    texts, ratios = [], []
    for name, rows in nonempty(grouped(run.rows, "data"), "data").items():
        b0, bound = efficient_batch(rows), rows[0]["bound_least"]
        ratios.append(b0 / bound if b0 else math.inf)
        texts.append(f"{name}: B0 = {b0 or 'none'}, diversity {bound:.0f}")
    holds = all(1 / BOUND_FACTOR <= ratio <= BOUND_FACTOR for ratio in ratios)
    return verdict(holds, "; ".join(texts), f"required a factor of {BOUND_FACTOR:g}")


@claim("beyond it there is no speed-up in steps", "theorem")
def beyond(run: Run) -> Verdict:
    """From B0 to k B0, steps fall by less than the square root of k, on all data."""
    texts, holds = [], []
    for name, rows in nonempty(grouped(run.rows, "data"), "data").items():
        b0 = efficient_batch(rows)
        larger = [row for row in rows if b0 and row["batch"] > b0 and row["steps"]]
        if not b0 or not larger:
            return untested("no batch beyond B0 was tried", f"{name}: B0 = {b0}")
        steps = next(row["steps"] for row in rows if row["batch"] == b0)
        gain = steps / min(row["steps"] for row in larger)
        factor = rows[-1]["batch"] / b0
        holds.append(gain < math.sqrt(factor))
        texts.append(f"{name}: {gain:.2f} times fewer for {factor:g} times the batch")
    return verdict(all(holds), "; ".join(texts), "required: less than the square root")


@claim("repeated examples reduce it", "theorem")
def repeated(run: Run) -> Verdict:
    """B0 of data with repeated examples is less than B0 of data without."""
    b0 = {
        name: efficient_batch(rows) for name, rows in grouped(run.rows, "data").items()
    }
    repeated, diverse = b0["repeated"], b0["diverse"]
    holds = repeated is not None and diverse is not None and repeated < diverse
    return verdict(holds, f"{repeated} and {diverse}", "predicted by the diversity")


CLAIMS = (bounded, beyond, repeated)
