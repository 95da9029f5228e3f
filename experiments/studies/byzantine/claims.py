"""Claims on Byzantine workers, judged by runs of byzantine.py.

An accuracy is the mean over the trainings of a cell; these differ in start value and
minibatches. The worst case of a rule is its least accuracy over the attacks of a run.
"""

from collections.abc import Callable, Mapping, Sequence

from lab.claims import Claim, Verdict, claim, nonempty, untested, verdict

from dml.runs.results import Run
from studies.byzantine.report import Worst, counts, rules, worst

MIN_SEEDS = 3  # fewest trainings whose means are compared
HOLDS = 0.05  # largest loss of accuracy of a rule that withstands an attack
FALLS = 0.20  # least loss of accuracy of a rule that an attack breaks
NNM = "+nnm"
FEW = f"fewer than {MIN_SEEDS} trainings of a cell"


def few(*runs: Run) -> bool:
    return any(run.flags["seeds"] < MIN_SEEDS for run in runs)


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


@claim("Krum tolerates f attackers", "figure 4: f of 33 %, noise and -gradient")
def krum_holds(run: Run) -> Verdict:
    """With most attackers the worst case of Krum is at most 5 points lower."""
    most, before = counts(run.rows)[-1], clean(run, "krum")
    case = worst_case(run, "krum", most)
    if few(run):
        return untested(FEW, text("krum", case))
    holds = before - case.accuracy <= HOLDS
    reason = f"{before:.1%} without attackers, f = {most}"
    return verdict(holds, text("krum", case), reason)


@claim("without attackers multi-Krum is as accurate as the mean", "figure 6")
def multi_krum_clean(run: Run) -> Verdict:
    """Without attackers multi-Krum is at most 5 points below the mean."""
    mean, own = clean(run, "mean"), clean(run, "multi_krum")
    measured = f"multi_krum {own:.1%}, mean {mean:.1%}"
    if few(run):
        return untested(FEW, measured)
    return verdict(mean - own <= HOLDS, measured, "after equal numbers of updates")


REPORTED = "reported: 20 % of the workers halve the accuracy on CIFAR-10"


def falls(run: Run, *names: str) -> Verdict:
    """Judge whether the worst cases of rules are at least 20 points lower."""
    most = counts(run.rows)[-1]
    cases = {name: worst_case(run, name, most) for name in names}
    lost = {name: clean(run, name) - case.accuracy for name, case in cases.items()}
    measured = "; ".join(
        f"{text(name, case)}, {clean(run, name):.1%} without attackers"
        for name, case in cases.items()
    )
    if few(run):
        return untested(FEW, measured)
    reason = f"{most} of {run.flags['honest'] + most} workers attack"
    return verdict(min(lost.values()) >= FALLS, measured, reason)


@claim("Krum falls to ALIE", REPORTED)
def krum_falls(run: Run) -> Verdict:
    """With most attackers the worst case of Krum is at least 20 points lower."""
    return falls(run, "krum")


@claim("the trimmed mean falls to ALIE", REPORTED)
def trimmed_mean_falls(run: Run) -> Verdict:
    """With most attackers the worst case is at least 20 points lower."""
    return falls(run, "trimmed_mean")


@claim("NNM raises the worst case of every rule on skewed data", "MNIST, n = 17, f = 4")
def mixing_lifts(run: Run) -> Verdict:
    """With most attackers every rule has a better worst case after NNM."""
    most, names = counts(run.rows)[-1], rules(run.rows)
    pairs = [(name.removesuffix(NNM), name) for name in names if name.endswith(NNM)]
    both = nonempty([pair for pair in pairs if pair[0] in names], "rule with +nnm")
    cases = [[worst_case(run, rule, most) for rule in pair] for pair in both]
    measured = ", ".join(
        f"{rule} {plain.accuracy:.1%} to {mixed.accuracy:.1%}"
        for (rule, _), (plain, mixed) in zip(both, cases, strict=True)
    )
    if few(run):
        return untested(FEW, measured)
    holds = all(mixed.accuracy > plain.accuracy for plain, mixed in cases)
    return verdict(holds, measured, f"{run.flags['skews']}, f = {most}")


@claim("centred clipping needs worker momentum", "theorem 1, figure 2: ALIE")
def clipping_needs_momentum(full: Run, plain: Run) -> Verdict:
    """Under ALIE the worst case of centred clipping with most attackers is at most 5
    points lower with worker momentum, and at least 20 points lower without.
    """
    most, name = counts(full.rows)[-1], "centred_clipping"
    cases = [(worst_case(run, name, most), clean(run, name)) for run in (full, plain)]
    measured = "; ".join(
        f"{kind} momentum {case.accuracy:.1%}, {before:.1%} without attackers"
        for kind, (case, before) in zip(("with", "without"), cases, strict=True)
    )
    if few(full, plain):
        return untested(FEW, measured)
    lost = [before - case.accuracy for case, before in cases]
    return verdict(lost[0] <= HOLDS and lost[1] >= FALLS, measured, f"f = {most}")


@claim("s attackers of a group of 2s+1 change no bit", "theorem 1: exact recovery")
def draco_exact(*runs: Run) -> Verdict:
    """All losses and the accuracy of each attacked run equal those of the first run,
    as numbers of double precision. The first run has no attackers.
    """
    plain, *attacked = runs
    texts = [f"{run.flags['attack']} {final(run)}" for run in attacked]
    losses = [row["loss"] for row in nonempty(plain.rows, "loss")]
    holds = all(
        [row["loss"] for row in run.rows] == losses
        and run.summary["accuracy"] == plain.summary["accuracy"]
        for run in attacked
    )
    reason = f"{len(losses)} losses; without attackers {final(plain)}"
    return verdict(holds, ", ".join(texts), reason)


@claim("without a code one attacker breaks the training", "figure 3")
def uncoded_breaks(plain: Run, attacked: Run) -> Verdict:
    """One attacker lowers the accuracy of the mean by at least 20 points."""
    lost = plain.summary["accuracy"] - attacked.summary["accuracy"]
    measured = f"{attacked.flags['attack']} {final(attacked)}"
    return verdict(lost >= FALLS, measured, f"without attackers {final(plain)}")


def final(run: Run) -> str:
    return f"{run.summary['accuracy']:.2%}"


def is_alie(attacks: Sequence[str]) -> bool:
    return all(attack.partition(":")[0] == "alie" for attack in attacks)


def is_opposed(attacks: Sequence[str]) -> bool:
    return all(attack.partition(":")[0] in ("noise", "sign_flip") for attack in attacks)


def is_any(attacks: Sequence[str]) -> bool:
    return True


# the rules and attacks that a run must have for a claim
NEEDS: Mapping[Claim, tuple[Sequence[str], Callable[[Sequence[str]], bool]]] = {
    mean_breaks: (("mean",), is_any),
    krum_holds: (("krum",), is_opposed),
    multi_krum_clean: (("mean", "multi_krum"), is_any),
    krum_falls: (("krum",), is_alie),
    trimmed_mean_falls: (("trimmed_mean",), is_alie),
    mixing_lifts: (("krum", "krum+nnm"), is_any),
}
KRUM = (mean_breaks, krum_holds, multi_krum_clean)
ALIE = (krum_falls, trimmed_mean_falls)
CLAIMS = tuple(NEEDS)


def testable(rules: Sequence[str], attacks: Sequence[str]) -> list[Claim]:
    """Return the claims of one run that its rules and attacks can test."""
    return [
        claim
        for claim, (needed, fits) in NEEDS.items()
        if set(rules).issuperset(needed) and fits(attacks)
    ]
