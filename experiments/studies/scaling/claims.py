"""Claims on how far training scales, judged by runs of scaling.py.

Sergeev & Del Balso, Horovod, 2018; the lecture's table of BERT-large on V100.
"""

from lab.claims import Verdict, claim, rows, verdict

from dml.runs.results import Run
from dml.runs.writers import Row

PUBLISHED = {"resnet": 0.90, "vgg": 0.68}  # of linear, at 512 GPUs
SCALES = 0.85  # least share of linear speed-up
MODEL = 0.1  # relative tolerance of published minutes
FORTNIGHT = 14 * 24 * 60.0  # minutes; one V100 takes more


@claim("ResNet-101 scales, VGG-16 less", "90 % and 68 % of linear at 512 GPUs")
def scales(resnet: Run, vgg: Run) -> Verdict:
    """The published share of linear lies between ours in turn and ours overlapped.

    That for both networks, and ResNet-101's is above VGG-16's in turn.
    """
    runs = {"resnet": resnet, "vgg": vgg}
    turn, both = (
        {name: run.summary[f"efficiency{way}_512"] for name, run in runs.items()}
        for way in ("", "_overlapped")
    )
    between = all(turn[name] <= PUBLISHED[name] <= both[name] for name in PUBLISHED)
    measured = ", ".join(
        f"{name} {turn[name]:.0%} to {both[name]:.0%}" for name in turn
    )
    holds = between and turn["resnet"] > turn["vgg"]
    return verdict(
        holds, measured, "predicted by alpha, beta, gamma, in turn to overlapped"
    )


def bert(run: Run) -> dict[str, Row]:
    """Return the rows of BERT-large: as published, and by each model."""
    return {row["job"]: row for row in rows(run, table="bert")}


@claim("it scales", "236, 67, 47 min on 256, 1024, 1472")
def efficient(run: Run) -> Verdict:
    """The published minutes at 1024 and 1472 are 85 % of linear from 256, or more."""
    row = bert(run)["published"]
    shares = [row["efficiency_1024"], row["efficiency_1472"]]
    measured = f"{shares[0]:.1%} at 1024, {shares[1]:.1%} at 1472"
    return verdict(min(shares) >= SCALES, measured, f"asked {SCALES:.0%}; arithmetic")


@claim("alpha, beta, gamma explain it", "67 and 47 min")
def modelled(run: Run) -> Verdict:
    """A model by alpha, beta, gamma, fitted to 256, misses both others by at most 10 %.

    Rings on one level or two, overlapped or in turn: the best of four.
    """
    off = {
        job: max(abs(row["error_1024"]), abs(row["error_1472"]))
        for job, row in bert(run).items()
        if job != "published"
    }
    best = min(off, key=lambda job: off[job])
    measured = f"{best}: {off[best]:.1%}"
    return verdict(off[best] <= MODEL, measured, f"asked {MODEL:.0%}; 4 models")


@claim("one V100 takes over two weeks", "> 2 weeks")
def fortnight(run: Run) -> Verdict:
    """256 times the minutes of 256 V100, one V100's if linear, are over two weeks."""
    alone = 256 * bert(run)["published"]["minutes_256"]
    measured = f"{alone / 24 / 60:.0f} days"
    return verdict(alone > FORTNIGHT, measured, "asked 14; arithmetic")


CLAIMS = (efficient, modelled, fortnight)
