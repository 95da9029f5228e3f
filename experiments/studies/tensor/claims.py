"""Claims of Shoeybi et al., Megatron-LM, 2019, and the lecture's sizes of models.

Judged by runs of tensor.py and memory.py.
"""

from lab.claims import Verdict, claim, nonempty, rows, verdict

from dml.runs.results import Run

ALLREDUCES = 4  # in a block: 2 forward, 2 backward
ROUNDING = 0.05  # relative tolerance: the lecture rounds sizes to two digits


@claim("2 + 2 all-reduces per layer", "exact bytes")
def two_and_two(run: Run) -> Verdict:
    """The compiled block has 4 all-reduces and sends exactly the bytes of the formula.

    A device sends 2 b s h (t - 1)/t elements in each, for b examples of s positions,
    h units and t devices.
    """
    counts = nonempty(by_devices(run, "block_collectives_"), "block_collectives")
    sent = by_devices(run, "block_bytes_")
    predicted = by_devices(run, "block_formula_bytes_")
    holds = sent == predicted and set(counts.values()) == {ALLREDUCES}
    measured = ", ".join(
        f"{count} all-reduces, {sent[t]:,.0f} bytes of {predicted[t]:,.0f} on {t}"
        for t, count in counts.items()
    )
    return verdict(holds, measured, "read from the compiled program")


def by_devices(run: Run, prefix: str) -> dict[int, float]:
    """Return the values of summary keys `<prefix><devices>`, by number of devices."""
    values = {
        key.removeprefix(prefix): value
        for key, value in run.summary.items()
        if key.startswith(prefix)
    }
    return {int(t): value for t, value in values.items() if t.isdecimal()}


@claim("sizes of models", "0.32, 1.5, 17.2, 175 B")
def counted(run: Run) -> Verdict:
    """The parameters of the real shapes are within 5 % of the lecture's."""
    return within_rounding(run, "billions", "B")


@claim("16 bytes per parameter", "5.12, 24, 275, 2800 GB")
def sixteen_bytes(run: Run) -> Verdict:
    """16 bytes per counted parameter are within 5 % of each of the lecture's sizes."""
    return within_rounding(run, "gigabytes", "GB")


def within_rounding(run: Run, column: str, unit: str) -> Verdict:
    """Judge whether a column is near the published numbers, for every model."""
    models = rows(run, table="lecture")
    worst = max(
        (row[column] / row[f"published_{column}"] - 1 for row in models), key=abs
    )
    measured = ", ".join(f"{row['model']} {row[column]:,.4g} {unit}" for row in models)
    reason = f"relative difference {worst:+.1%} at most"
    return verdict(abs(worst) <= ROUNDING, measured, reason)
