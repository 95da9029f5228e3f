"""Claims on Byzantine workers, judged by runs of byzantine.py.

An accuracy is the mean over the trainings of a cell; these differ in start value and
minibatches. The worst case of a rule is its least accuracy over the attacks of a run.
"""

from collections.abc import Sequence

from lab.claims import Claim, Verdict, claim, nonempty, untested, verdict

from dml.runs.results import Run
from studies.byzantine.report import Worst, counts, key, rules, worst

MIN_SEEDS = 3  # fewest trainings whose means are compared
HOLDS = 0.05  # largest loss of accuracy of a rule that withstands an attack
FALLS = 0.20  # least loss of accuracy of a rule that an attack breaks
NNM = "+nnm"
FEW = f"fewer than {MIN_SEEDS} trainings of a cell"


def few(*runs: Run) -> bool:
    return any(run.flags["seeds"] < MIN_SEEDS for run in runs)


def cell(run: Run, rule: str, attack: str, attackers: int) -> float:
    """Return the accuracy of a cell; KeyError if the run has none."""
    found = [
        row[key(attackers)]
        for row in run.rows
        if row["rule"] == rule and row["attack"] == attack
    ]
    accuracies = [each for each in found if each is not None]
    return min(nonempty(accuracies, f"{rule} under {attack}"))


def worst_case(run: Run, rule: str, attackers: int) -> Worst:
    """Return the worst case of a rule; KeyError if the run has none."""
    case = worst(run.rows, rule, attackers)
    if case is None:
        raise KeyError(f"{rule} with {attackers} attackers")
    return case


def clean(run: Run, rule: str) -> float:
    """Return the accuracy of a rule without attackers."""
    return worst_case(run, rule, 0).accuracy


def text(rule: str, case: Worst) -> str:
    return f"{rule} {case.accuracy:.1%} under {case.attack}"


@claim("one attacker breaks the mean", "lemma 1")
def mean_breaks(run: Run) -> Verdict:
    """With one attacker the worst case of the mean is at least 20 points lower."""
    before, case = clean(run, "mean"), worst_case(run, "mean", 1)
    if few(run):
        return untested(FEW, text("mean", case))
    holds = before - case.accuracy >= FALLS
    return verdict(holds, text("mean", case), f"{before:.1%} without attackers")


@claim("Krum tolerates f attackers", "figures 4 and 5: Gaussian and opposite gradients")
def krum_holds(run: Run) -> Verdict:
    """Under noise and sign_flip with most attackers Krum loses at most 5 points."""
    most, before = counts(run.rows)[-1], clean(run, "krum")
    found = {name: cell(run, "krum", name, most) for name in ("noise", "sign_flip")}
    measured = ", ".join(f"{name} {value:.1%}" for name, value in found.items())
    if few(run):
        return untested(FEW, measured)
    holds = before - min(found.values()) <= HOLDS
    return verdict(holds, measured, f"{before:.1%} without attackers, f = {most}")


@claim("multi-Krum has the speed of the mean without attackers", "figure 6")
def multi_krum_clean(run: Run) -> Verdict:
    """Without attackers multi-Krum is at most 5 points below the mean."""
    mean, own = clean(run, "mean"), clean(run, "multi_krum")
    measured = f"multi_krum {own:.1%}, mean {mean:.1%}"
    if few(run):
        return untested(FEW, measured)
    return verdict(mean - own <= HOLDS, measured, "after equal numbers of updates")


@claim("Krum falls to ALIE", "CIFAR-10, 20 % of the workers: accuracy more than halved")
def krum_falls(run: Run) -> Verdict:
    """Under ALIE with most attackers Krum loses at least 20 points."""
    most, before = counts(run.rows)[-1], clean(run, "krum")
    found = cell(run, "krum", "alie", most)
    measured = f"{found:.1%} with f = {most}, {before:.1%} without attackers"
    if few(run):
        return untested(FEW, measured)
    return verdict(before - found >= FALLS, measured, "required: 20 points less")


@claim("trimmed mean and median fall to ALIE", "CIFAR-10: trimmed mean by 30 points")
def coordinates_fall(run: Run) -> Verdict:
    """Under ALIE with most attackers both rules lose at least 20 points."""
    most, losses, texts = counts(run.rows)[-1], [], []
    for rule in ("trimmed_mean", "median"):
        found = cell(run, rule, "alie", most)
        losses.append(clean(run, rule) - found)
        texts.append(f"{rule} {found:.1%}, without attackers {clean(run, rule):.1%}")
    measured = "; ".join(texts)
    if few(run):
        return untested(FEW, measured)
    return verdict(min(losses) >= FALLS, measured, f"f = {most}")


@claim("NNM raises the worst case of every rule at gamma = 0", "MNIST, figure 2")
def mixing_lifts(run: Run) -> Verdict:
    """With most attackers every rule has a better worst case after NNM."""
    most, names = counts(run.rows)[-1], rules(run.rows)
    pairs = [(name.removesuffix(NNM), name) for name in names if name.endswith(NNM)]
    both = nonempty([pair for pair in pairs if pair[0] in names], "rule with +nnm")
    cases = [[worst_case(run, rule, most).accuracy for rule in pair] for pair in both]
    measured = ", ".join(
        f"{rule} {plain:.1%} to {mixed:.1%}"
        for (rule, _), (plain, mixed) in zip(both, cases, strict=True)
    )
    if few(run):
        return untested(FEW, measured)
    holds = all(mixed > plain for plain, mixed in cases)
    return verdict(holds, measured, f"worst attack, f = {most}")


@claim("centred clipping needs worker momentum", "Karimireddy 2021, figure 3: ALIE")
def clipping_needs_momentum(full: Run, plain: Run) -> Verdict:
    """Under ALIE with most attackers centred clipping loses at most 5 points with
    worker momentum and at least 20 without.
    """
    most, losses, texts = counts(full.rows)[-1], [], []
    for name, run in (("with", full), ("without", plain)):
        rule = nonempty([r for r in rules(run.rows) if r.startswith("centred")], "rule")
        found, before = cell(run, rule[0], "alie", most), clean(run, rule[0])
        losses.append(before - found)
        texts.append(f"{name} momentum {found:.1%} (no attackers: {before:.1%})")
    measured = ", ".join(texts)
    if few(full, plain):
        return untested(FEW, measured)
    holds = losses[0] <= HOLDS and losses[1] >= FALLS
    return verdict(holds, measured, f"f = {most}")


KRUM = (mean_breaks, krum_holds, multi_krum_clean)
ALIE = (krum_falls, coordinates_fall)
ONE_RUN = (*KRUM, *ALIE, mixing_lifts)  # claims that one run can judge

# what a run must have for a claim: rules and attacks
NEEDS: dict[Claim, tuple[Sequence[str], Sequence[str]]] = {
    mean_breaks: (("mean",), ()),
    krum_holds: (("krum",), ("noise", "sign_flip")),
    multi_krum_clean: (("mean", "multi_krum"), ()),
    krum_falls: (("krum",), ("alie",)),
    coordinates_fall: (("trimmed_mean", "median"), ("alie",)),
}


def testable(rules: Sequence[str], attacks: Sequence[str]) -> list[Claim]:
    """Return the claims of one run that its rules and attacks can test."""
    return [
        claim
        for claim, (needed, under) in NEEDS.items()
        if set(rules).issuperset(needed) and set(attacks).issuperset(under)
    ]
