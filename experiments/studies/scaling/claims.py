"""Claims on the scaling of training, judged by runs of scaling.py.

Sergeev & Del Balso, Horovod, 2018; the lecture's table of BERT-large on V100.
"""

from lab.claims import Verdict, claim, rows, verdict

from dml.runs.results import Run
from dml.runs.writers import Row

PUBLISHED = {"resnet": 0.90, "vgg": 0.68}  # share of linear speed-up at 512 GPUs
MIN_EFFICIENCY = 0.85  # required share of linear speed-up
MODEL_TOLERANCE = 0.1  # relative, of published minutes
FORTNIGHT = 14 * 24 * 60.0  # minutes; one V100 takes more


@claim("ResNet-101 scales, VGG-16 less", "90 % and 68 % of linear at 512 GPUs")
def scales(resnet: Run, vgg: Run) -> Verdict:
    """The published efficiency lies between ours without and with overlap.

    This holds for both networks; without overlap ResNet-101's is above VGG-16's.
    """
    runs = {"resnet": resnet, "vgg": vgg}
    sequential, overlapped = (
        {name: run.summary[f"efficiency{suffix}_512"] for name, run in runs.items()}
        for suffix in ("", "_overlapped")
    )
    between = all(
        sequential[name] <= published <= overlapped[name]
        for name, published in PUBLISHED.items()
    )
    measured = ", ".join(
        f"{name} {sequential[name]:.0%} to {overlapped[name]:.0%}"
        for name in sequential
    )
    holds = between and sequential["resnet"] > sequential["vgg"]
    return verdict(
        holds, measured, "predicted by alpha, beta, gamma, without and with overlap"
    )


def bert(run: Run) -> dict[str, Row]:
    """Return the rows of BERT-large by job: "published", and each model."""
    return {row["job"]: row for row in rows(run, table="bert")}


@claim("BERT-large scales", "236, 67, 47 min on 256, 1024, 1472")
def efficient(run: Run) -> Verdict:
    """The published efficiencies of 1024 and 1472 relative to 256 are 85 % or more."""
    row = bert(run)["published"]
    least = min(row["efficiency_1024"], row["efficiency_1472"])
    measured = (
        f"{row['efficiency_1024']:.1%} at 1024, {row['efficiency_1472']:.1%} at 1472"
    )
    reason = f"required {MIN_EFFICIENCY:.0%}; arithmetic"
    return verdict(least >= MIN_EFFICIENCY, measured, reason)


@claim("the alpha-beta-gamma model predicts its times", "67 and 47 min")
def modelled(run: Run) -> Verdict:
    """A model fitted to 256 V100 has errors of at most 10 % at 1024 and 1472.

    The best of four models counts: rings in one level or two, with overlap or without.
    """
    errors = {
        job: max(abs(row["error_1024"]), abs(row["error_1472"]))
        for job, row in bert(run).items()
        if job != "published"
    }
    best = min(errors, key=lambda job: errors[job])
    holds = errors[best] <= MODEL_TOLERANCE
    reason = f"required {MODEL_TOLERANCE:.0%}; {len(errors)} models"
    return verdict(holds, f"{best}: {errors[best]:.1%}", reason)


@claim("one V100 takes over two weeks", "> 2 weeks")
def fortnight(run: Run) -> Verdict:
    """One V100 takes over two weeks, if 256 V100 are 256 times as fast."""
    serial_minutes = 256 * bert(run)["published"]["minutes_256"]
    measured = f"{serial_minutes / 24 / 60:.0f} days"
    return verdict(serial_minutes > FORTNIGHT, measured, "required 14; arithmetic")


CLAIMS = (efficient, modelled, fortnight)
