"""Papers on how large a minibatch may be: their rows, and rules over our runs."""

import math
from statistics import mean, stdev

from papers_claims import Claim, Command, Finding, Paper, Seen, judged, some, untested

POINT = 0.01  # of held-out images: an accuracy that is as good
ERRORS = 2.0  # standard errors of a mean: more is no luck
NEAR = 4.0  # times the bound, or its part, within which B0 agrees with it
WORTH = 2.0  # times the examples of batch 1, up to which a batch is worth it


def as_one(seen: Seen) -> Finding:
    """Gradual warm-up ends within a point of the baseline's error, on the mean."""
    one, many = (mean(errors(seen)[way]) for way in ("baseline", "gradual"))
    ours = f"{many:.2%}, baseline {one:.2%}"
    return judged(many - one <= POINT, ours, "k times the batch and the rate")


def unscaled(seen: Seen) -> Finding:
    """Unscaled errs more than every other way, by over 2 standard errors of pairs."""
    others = ("baseline", "gradual", "none", "constant")
    return worse(seen, [("unscaled", other) for other in others])


def gradual(seen: Seen) -> Finding:
    """None and constant err more than gradual, by over 2 standard errors of pairs.

    Pairs are of equal seeds.
    """
    return worse(seen, [("none", "gradual"), ("constant", "gradual")])


def worse(seen: Seen, pairs: list[tuple[str, str]]) -> Finding:
    """Judge whether the first of each pair errs more, seed by seed."""
    known, said, held = errors(seen), [], []
    for one, other in pairs:
        apart = [a - b for a, b in zip(known[one], known[other], strict=True)]
        if len(apart) < 2:
            return untested("one seed has no standard error")
        error = stdev(apart) / math.sqrt(len(apart))
        held.append(mean(apart) > ERRORS * error)
        said.append(f"{one} - {other} {mean(apart):+.2%} ± {error:.2%}")
    return judged(all(held), ", ".join(said), f"asked {ERRORS:g} standard errors")


def errors(seen: Seen) -> dict[str, list[float]]:
    """Return the errors of all seeds: of the baseline, and of ways by many workers."""
    run = seen["batches"]
    return {
        row["warmup"]: row["errors"]
        for row in run.rows
        if row["workers"] in (1, run.flags["large"])
    }


def holds_then_falls(seen: Seen) -> Finding:
    """Accuracy is within a point of one worker's up to some x4 or more, then is not.

    All with gradual warm-up, on the mean; beyond, no number of workers is as good.
    """
    rows = [r for r in seen["batches"].rows if r["warmup"] in ("baseline", "gradual")]
    found = {row["workers"]: 1 - mean(row["errors"]) for row in rows}
    good = [found[1] - found[factor] <= POINT for factor in sorted(found)]
    last = good.index(False) if False in good else len(good)
    factors = sorted(found)
    holds = factors[last - 1] >= 4 and last < len(good) and not any(good[last:])
    ours = ", ".join(f"x{factor} {found[factor]:.1%}" for factor in factors)
    return judged(holds, ours, f"as good up to x{factors[last - 1]}")


def by_data(seen: Seen) -> dict[str, list[dict]]:
    """Return the rows of batches by data."""
    found: dict[str, list[dict]] = {}
    for row in seen["sizes"].rows:
        found.setdefault(row["data"], []).append(row)
    return some(found, "data")


def knee(rows: list[dict]) -> int | None:
    """Return B0: the last batch that takes at most twice the examples of batch 1."""
    first, last = rows[0]["examples"], None
    for row in rows if first else ():
        if not row["examples"] or row["examples"] > WORTH * first:
            break
        last = row["batch"]
    return last


def bounded(seen: Seen) -> Finding:
    """B0 is within a factor of 4 of the gradients' diversity, on all data.

    B0 is the last batch that takes at most twice the examples that single ones take.
    """
    said, ratios = [], []
    for name, rows in by_data(seen).items():
        at, bound = knee(rows), rows[0]["bound_least"]
        ratios.append(at / bound if at else math.inf)
        said.append(f"{name}: B0 = {at or 'none'}, diversity {bound:.0f}")
    holds = all(1 / NEAR <= ratio <= NEAR for ratio in ratios)
    return judged(holds, "; ".join(said), f"asked a factor of {NEAR:g}")


def beyond(seen: Seen) -> Finding:
    """From B0 to k times it steps fall by less than the root of k, on all data."""
    said, holds = [], []
    for name, rows in by_data(seen).items():
        at = knee(rows)
        more = [row for row in rows if at and row["batch"] > at and row["steps"]]
        if not more:
            return untested("no batch beyond B0 was tried", f"{name}: B0 = {at}")
        steps = next(row["steps"] for row in rows if row["batch"] == at)
        gain = steps / min(row["steps"] for row in more)
        times = rows[-1]["batch"] / at
        holds.append(gain < math.sqrt(times))
        said.append(f"{name}: {gain:.2f} times fewer for {times:g} times the batch")
    return judged(all(holds), "; ".join(said), "asked less than the root")


def repeated(seen: Seen) -> Finding:
    """B0 of data whose examples repeat is less than that of different ones."""
    found = {name: knee(rows) for name, rows in by_data(seen).items()}
    few, many = found["repeated"], found["diverse"]
    holds = few is not None and many is not None and few < many
    return judged(holds, f"{few} and {many}", "as diversity says")


BATCHES = (
    Paper(
        "large_batch",
        "Goyal et al., Accurate, Large Minibatch SGD, 2017; the lecture's AlexNet",
        "8 to 256 images of 256 to 8192; 1,437 digits and a perceptron of 1.28 M "
        "images and ResNet-50; 10 seeds of 5 (12 if full)",
        (
            Claim(
                "accuracy holds to a batch, then falls",
                "AlexNet 58.42, 59.19, 59.00, 58.88, 57.97, 55.90 %",
                holds_then_falls,
            ),
            Claim("gradual warm-up errs as one worker", "23.74, 23.60 %", as_one),
            Claim("an unscaled rate is the worst", "41.67 %", unscaled),
            Claim("other warm-ups are worse", "none 24.84, constant 25.88 %", gradual),
        ),
        {
            "batches": Command(
                "large_batch.py",
                "--seeds=12",
                "--seeds=10",
                "--seeds=2 --factors=1,2 --large=2 --epochs=1 --base_batch=32 "
                "--target=0.6 --lr=0.05 --warmup_epochs=0.25",
            )
        },
        "batches/accuracy.svg",
        (70, 60),
    ),
    Paper(
        "speedup",
        "The lecture: speed-up is time to accuracy, serial over parallel; Yin et al., "
        "Gradient Diversity, 2018",
        "32,768 generated examples, batches of 1 to 32,768",
        (
            Claim("a batch helps up to the gradients' diversity", "theorem", bounded),
            Claim("beyond it there is no speed-up in steps", "theorem", beyond),
            Claim("repeated examples leave less", "theorem", repeated),
        ),
        {
            "sizes": Command(
                "batch_size.py",
                "--workers=1",
                "--batches=4,16,64,256,512,1024,4096,32768",
                "--examples=256 --features=60 --nonzeros=5 --copies=16 --mu=1e-3 "
                "--batches=4,64,256 --epochs=20 --looks=8",
            )
        },
        "sizes/steps.svg",
        (40, 30),
    ),
)
