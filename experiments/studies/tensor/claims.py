"""Claims of Shoeybi et al., Megatron-LM, 2019, and the lecture's sizes of models.

Judged by runs of tensor.py and memory.py.
"""

from lab.claims import Verdict, claim, nonempty, rows, verdict

from dml.runs.results import Run

ALLREDUCES = 4  # in a block: 2 forward, 2 backward
ROUNDED = 0.05  # relative tolerance: the lecture rounds sizes to two digits


@claim("2 + 2 all-reduces a layer", "exact bytes")
def two_and_two(run: Run) -> Verdict:
    """The compiled block has 4 all-reduces, and exactly the formula's bytes.

    A device sends 2 b s h (t - 1)/t words in each: batch, places, width, devices.
    """
    counts = nonempty(by_devices(run, "block_collectives_"), "block_collectives")
    sent, wanted = (
        by_devices(run, f"block_{which}bytes_") for which in ("", "formula_")
    )
    holds = sent == wanted and set(counts.values()) == {ALLREDUCES}
    measured = ", ".join(
        f"{count} all-reduces, {sent[t]:,.0f} bytes of {wanted[t]:,.0f} on {t}"
        for t, count in counts.items()
    )
    return verdict(holds, measured, "read from the compiled program")


def by_devices(run: Run, start: str) -> dict[int, float]:
    """Return the values of summary keys `<start><devices>`, by number of devices."""
    numbers = {
        name.removeprefix(start): n
        for name, n in run.summary.items()
        if name.startswith(start)
    }
    return {int(t): n for t, n in numbers.items() if t.isdecimal()}


@claim("sizes of models", "0.32, 1.5, 17.2, 175 B")
def counted(run: Run) -> Verdict:
    """The parameters of the real shapes are within 5 % of the lecture's."""
    return within_rounding(run, "billions", "B")


@claim("16 bytes a parameter", "5.12, 24, 275, 2800 GB")
def sixteen_bytes(run: Run) -> Verdict:
    """16 bytes a counted parameter are within 5 % of each of the lecture's sizes."""
    return within_rounding(run, "gigabytes", "GB")


def within_rounding(run: Run, number: str, unit: str) -> Verdict:
    """Judge whether a number is near the published one, for every model."""
    models = rows(run, table="lecture")
    worst = max(
        (row[number] / row[f"published_{number}"] - 1 for row in models), key=abs
    )
    measured = ", ".join(f"{row['model']} {row[number]:,.4g} {unit}" for row in models)
    return verdict(abs(worst) <= ROUNDED, measured, f"{worst:+.1%} off at most")
