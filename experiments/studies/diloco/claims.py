"""Claims on training with rare exchanges, judged by a run of diloco.py.

Douillard et al., DiLoCo, 2023, and Streaming DiLoCo, 2025.
"""

import math

from lab.claims import Claim, Verdict, claim, matching, nonempty, rows, verdict

from dml.runs.results import Run
from dml.runs.writers import Row

EQUAL = 0.01  # relative difference of losses and of bytes that count as equal
GROWTH = 0.029  # published increase of the perplexity from H = 50 to 1000


def synchronous(run: Run) -> Row:
    return rows(run, name="synchronous")[0]


def plain(run: Run) -> list[Row]:
    """Return the rows of DiLoCo without codes, fragments and delay, by period."""
    chosen = matching(run.rows, reducer="exact", fragments=1, delay=0)
    return nonempty(sorted(filter(period, chosen), key=period), "DiLoCo")


def period(row: Row) -> int:
    number: int = row["period"]
    return number


def losses(*named: Row) -> str:
    return ", ".join(f"{row['name']} {row['loss']:.3f}" for row in named)


def scale(run: Run) -> str:
    values = run.flags
    return (
        f"{values['ranks']} ranks, {values['steps']} updates, {values['seeds']} seeds"
    )


def as_good(run: Run, others: list[Row]) -> Verdict:
    """Judge whether losses are at most 1 % above that of DiLoCo with equal period."""
    (base,) = matching(plain(run), period=nonempty(others, "rows")[0]["period"])
    holds = all(row["loss"] <= base["loss"] * (1 + EQUAL) for row in others)
    return verdict(holds, losses(*others, base), scale(run))


@claim("DiLoCo performs as well as synchronous training", "C4, 8 workers, H = 500")
def diloco_is_as_good(run: Run) -> Verdict:
    """With the shortest period the loss is at most 1 % above that of synchronous."""
    shortest, exact = plain(run)[0], synchronous(run)
    holds = shortest["loss"] <= exact["loss"] * (1 + EQUAL)
    outer = run.flags["steps"] // shortest["period"]
    return verdict(holds, losses(shortest, exact), f"{outer} outer steps, {scale(run)}")


@claim("DiLoCo communicates H times less", "500 times at H = 500")
def diloco_sends_less(run: Run) -> Verdict:
    """Synchronous training sends H times the bytes for each period H, up to 1 %."""
    ratios = {
        row["period"]: synchronous(run)["bytes_sent"] / row["bytes_sent"]
        for row in plain(run)
    }
    holds = all(abs(ratio / h - 1) <= EQUAL for h, ratio in ratios.items())
    text = ", ".join(f"{ratio:.1f} at H = {h}" for h, ratio in ratios.items())
    return verdict(holds, text, scale(run))


@claim(
    "rarer exchanges cost little", "perplexity +2.9 % from H = 50 to 1000 (reported)"
)
def diloco_by_period(run: Run) -> Verdict:
    """From the shortest to the longest period the perplexity grows by 2.9 % at most."""
    first, *_, last = plain(run)
    growth = math.exp(last["loss"] - first["loss"]) - 1
    text = f"{growth:+.1%} from H = {first['period']} to {last['period']}"
    outer = run.flags["steps"] // last["period"]
    return verdict(growth <= GROWTH, text, f"{outer} outer steps, {scale(run)}")


@claim("P fragments lower the peak of the traffic P times", "by construction")
def streaming_peak(run: Run) -> Verdict:
    """The peak bytes per update are 1/P of those of DiLoCo, up to 1 %."""
    holds, texts = [], []
    for row in streaming(run):
        (base,) = matching(plain(run), period=row["period"])
        ratio = base["peak_bytes"] / row["peak_bytes"]
        holds.append(abs(ratio / row["fragments"] - 1) <= EQUAL)
        texts.append(f"{ratio:.2f} with {row['name']}")
    return verdict(all(holds), ", ".join(texts), scale(run))


def streaming(run: Run) -> list[Row]:
    chosen = [row for row in run.rows if row["fragments"] > 1]
    return nonempty(chosen, "fragments")


@claim("streaming and overlap have the loss of DiLoCo", "no loss of quality")
def streaming_is_as_good(run: Run) -> Verdict:
    """With fragments, and with a delay, the loss is at most 1 % above DiLoCo's."""
    return as_good(run, streaming(run))


@claim(
    "coded outer gradients have the loss of exact ones", "4 bits, no loss of quality"
)
def coded_is_as_good(run: Run) -> Verdict:
    """With each code the loss is at most 1 % above that of exact outer gradients."""
    return as_good(run, [row for row in run.rows if row["reducer"] != "exact"])


DILOCO: tuple[Claim, ...] = (diloco_is_as_good, diloco_sends_less, diloco_by_period)
STREAMING: tuple[Claim, ...] = (streaming_peak, streaming_is_as_good, coded_is_as_good)
CLAIMS = (*DILOCO, *STREAMING)
