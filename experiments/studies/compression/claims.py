"""Claims of papers on compressed gradients, judged by runs of compressed.py.

An accuracy is the mean over the trainings of a row; they differ in the minibatches.
"""

import statistics
from collections.abc import Sequence
from functools import partial

from lab import flags
from lab.claims import Claim, Verdict, claim, rows, untested, verdict

from dml.runs.results import Run
from dml.runs.writers import Row

POINT = 0.01  # accuracies that differ by at most this much count as equal
LOSS = 0.05  # losses that differ by at most this share count as equal
MIN_SEEDS = 3  # fewest trainings whose means are compared
CONVERGED = 0.1  # share of the first loss below which a training converged


def only(run: Run, name: str) -> Row:
    """Return the row of a reducer."""
    return rows(run, reducer=name)[0]


def starting(run: Run, prefix: str) -> Row:
    """Return the first row whose reducer starts with a prefix; KeyError if none has."""
    names = [row["reducer"] for row in run.rows if row["reducer"].startswith(prefix)]
    return only(run, (names or [prefix])[0])


def accuracy_text(row: Row) -> str:
    """Return the mean and the spread of the accuracies of a row."""
    values = row["accuracies"]
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{row['reducer']} {row['accuracy']:.1%} ± {spread:.1%}"


def compared(run: Run, *chosen: Row) -> str:
    """Return the texts of the exact row and of further rows."""
    return ", ".join(map(accuracy_text, (only(run, "exact"), *chosen)))


def few(run: Run) -> bool:
    return run.flags["seeds"] < MIN_SEEDS


FEW = f"fewer than {MIN_SEEDS} trainings"


@claim("4 bits keep the accuracy", "AlexNet 59.50 -> 60.05 %")
def quantised_accuracy(run: Run) -> Verdict:
    """QSGD with 4 levels is at most a point less accurate than exact sums."""
    row = only(run, "qsgd:4")
    if few(run):
        return untested(FEW)
    holds = row["accuracy"] >= only(run, "exact")["accuracy"] - POINT
    return verdict(holds, compared(run, row), "required: at most a point less")


@claim("QSGD trains faster at full accuracy", "1.8x, ResNet-152 on 16 GPUs")
def quantised_speed(run: Run) -> Verdict:
    """On the virtual network an update with QSGD takes less time than an exact one."""
    return faster(run, only(run, "qsgd:4"))


def faster(run: Run, row: Row) -> Verdict:
    """Judge whether an update of a row takes less time than that of the exact row."""
    own, exact = row["step_seconds"], only(run, "exact")["step_seconds"]
    measured = (
        f"{exact / own:.2f}x: {1e3 * own:.2f} ms, exact {1e3 * exact:.2f} ms at "
        f"{run.flags['gbps']:g} Gb/s"
    )
    return verdict(own < exact, measured, "measured gradient and codec, virtual wire")


@claim("rank 2 has the accuracy of SGD", "94.4 %, SGD 94.3 %")
def low_rank_accuracy(run: Run) -> Verdict:
    """PowerSGD of rank 2 with feedback is at most a point less accurate than SGD."""
    row = only(run, "power_sgd:2+feedback")
    if few(run):
        return untested(FEW)
    holds = row["accuracy"] >= only(run, "exact")["accuracy"] - POINT
    return verdict(holds, compared(run, row), "required: at most a point less")


@claim("PowerSGD needs error feedback", "ablation, table 2")
def low_rank_feedback(run: Run) -> Verdict:
    """PowerSGD without feedback ends with a larger loss and a lower accuracy."""
    plain, full = only(run, "power_sgd:2"), only(run, "power_sgd:2+feedback")
    holds = plain["loss"] > full["loss"] and plain["accuracy"] < full["accuracy"]
    reason = f"loss {plain['loss']:.3f} without, {full['loss']:.3f} with"
    return verdict(holds, compared(run, plain, full), reason)


@claim("PowerSGD's updates are faster", "239 ms, SGD 312 ms at 10 Gb/s")
def low_rank_speed(run: Run) -> Verdict:
    """On the virtual network an update with PowerSGD takes less than an exact one."""
    return faster(run, only(run, "power_sgd:2+feedback"))


@claim(
    "order at equal bytes: rank 2, top-k, random-k",
    "94.4, 93.6, 92.6 % at 8 MB per epoch",
)
def equal_bytes(run: Run) -> Verdict:
    """PowerSGD is more accurate than top-k, and top-k than random-k."""
    chosen = [starting(run, name) for name in ("power_sgd", "top_k", "random_k")]
    if few(run):
        return untested(FEW)
    accuracies = [row["accuracy"] for row in chosen]
    holds = accuracies[0] > accuracies[1] > accuracies[2]
    sent = ", ".join(f"{row['megabytes_per_epoch']:.3f}" for row in chosen)
    return verdict(holds, compared(run, *chosen), f"{sent} MB per epoch")


@claim("signs do not converge", "counterexamples 1 to 3")
def signs_diverge(*runs: Run) -> Verdict:
    """Without feedback the loss remains above a tenth of its start in all problems."""
    shares = [share(run, "sign") for run in runs]
    return verdict(min(shares) > CONVERGED, share_text(shares), "final over first loss")


@claim("signs with error feedback converge", "counterexamples 1 to 3")
def feedback_converges(*runs: Run) -> Verdict:
    """With feedback the loss falls below a tenth of its start in all problems."""
    shares = [share(run, "sign+feedback") for run in runs]
    return verdict(max(shares) < CONVERGED, share_text(shares), "final over first loss")


def share(run: Run, name: str) -> float:
    """Return the loss of the last parameters over that of the first ones."""
    row = only(run, name)
    return row["held_out_loss"] / row["first_loss"]


def share_text(shares: list[float]) -> str:
    return ", ".join(f"{share:.3f}" for share in shares)


@claim("signs with feedback have the accuracy of SGD", "CIFAR-10, figure 3")
def feedback_accuracy(run: Run) -> Verdict:
    """Signs with feedback are more accurate than without, and as accurate as SGD."""
    plain, full = only(run, "sign"), only(run, "sign+feedback")
    if few(run):
        return untested(FEW)
    exact = only(run, "exact")["accuracy"]
    holds = full["accuracy"] >= max(exact - POINT, plain["accuracy"])
    return verdict(holds, compared(run, plain, full), "required: at most a point less")


@claim("DGC keeps the accuracy at 0.1 % of the elements", "93.87 %, SGD 93.75 %")
def dgc_accuracy(run: Run) -> Verdict:
    """DGC is at most a point less accurate than SGD with momentum."""
    row = starting(run, "dgc")
    if few(run):
        return untested(FEW)
    holds = row["accuracy"] >= only(run, "exact")["accuracy"] - POINT
    return verdict(holds, compared(run, row), "required: at most a point less")


@claim("it is lost without momentum correction and warm-up", "92.75 %")
def dgc_without(run: Run) -> Verdict:
    """The largest 0.1 % with error feedback alone is over a point less accurate."""
    plain, full = starting(run, "top_k"), starting(run, "dgc")
    if few(run):
        return untested(FEW)
    holds = plain["accuracy"] < full["accuracy"] - POINT
    return verdict(holds, compared(run, plain, full), "required: over a point less")


@claim("DGC's code is 270 to 600 times smaller", "270x to 600x")
def dgc_ratio(run: Run) -> Verdict:
    """After the warm-up the code of a gradient is at least 270 times smaller."""
    ranks, sent = run.flags["ranks"], starting(run, "dgc")["last_ratio"]
    # an exact ring sends 2(p-1)/p gradients, an all-gather p-1 codes
    ratio = sent * ranks / 2
    measured = f"{ratio:.0f}x; {ranks} ranks send {sent:.0f} times less"
    return verdict(ratio >= 270, measured, "required 270x; p ranks send p-1 codes")


@claim("1-bit Adam converges as Adam", "BERT: the same loss curve")
def adam_loss(run: Run) -> Verdict:
    """1-bit Adam ends within 5 % of the held-out loss of Adam."""
    row, exact = starting(run, "one_bit_adam"), only(run, "exact")
    if few(run):
        return untested(FEW)
    losses = [each["held_out_loss"] for each in (row, exact)]
    measured = f"{losses[0]:.4f}, Adam {losses[1]:.4f}"
    return verdict(losses[0] <= losses[1] * (1 + LOSS), measured, "held-out loss")


@claim("1-bit Adam sends up to 5 times less", "up to 5x, warm-up included")
def adam_bytes(run: Run) -> Verdict:
    """The whole training sends at least 3 times fewer bytes, warm-up included."""
    row = starting(run, "one_bit_adam")
    measured = f"{row['ratio']:.1f}x, {row['last_ratio']:.0f}x after the warm-up"
    return verdict(row["ratio"] >= 3, measured, f"warm-up of {row['reducer']}")


# the reducers that a claim on one run compares beside `exact`, by their beginnings
COMPARED = {
    quantised_accuracy: ("qsgd:4",),
    quantised_speed: ("qsgd:4",),
    low_rank_accuracy: ("power_sgd:2+feedback",),
    low_rank_feedback: ("power_sgd:2", "power_sgd:2+feedback"),
    low_rank_speed: ("power_sgd:2+feedback",),
    equal_bytes: ("power_sgd", "top_k", "random_k"),
    feedback_accuracy: ("sign", "sign+feedback"),
    dgc_accuracy: ("dgc",),
    dgc_without: ("dgc", "top_k"),
    dgc_ratio: ("dgc",),
    adam_loss: ("one_bit_adam",),
    adam_bytes: ("one_bit_adam",),
}
CLAIMS = tuple(COMPARED)


def testable(names: Sequence[str], values: flags.FlagValues) -> list[Claim]:
    """Return the claims whose reducers, optimizer and bytes are those of a run."""
    left_out = set() if values.equal_bytes else {equal_bytes}
    if values.optimizer == "adam" or values.problem != "digits":
        left_out |= set(CLAIMS) - {adam_loss, adam_bytes}
    else:
        left_out |= {adam_loss, adam_bytes}
    return [
        claim
        for claim, compared in COMPARED.items()
        if claim not in left_out and all(map(partial(is_among, names), compared))
    ]


def is_among(names: Sequence[str], beginning: str) -> bool:
    return any(name.startswith(beginning) for name in names)
