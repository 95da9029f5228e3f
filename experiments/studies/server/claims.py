"""Claims on parameter servers, judged by runs of four experiments.

consistency.py: Ho et al. (SSP), NIPS 2013; Dai et al. (ESSP), AAAI 2015; and, as
server.py, Li et al. (Parameter Server), OSDI 2014. softsync.py: Zhang et al., 2015.
downpour.py: Dean et al. (DistBelief), NIPS 2012.

A run diverges if its last objective is not below the objective before training. (Twice
the last objective of s = 0 exceeds that objective, so it cannot be the bound.) Downpour
is faster if it takes 2 % less time; a smaller difference is the time of a few messages.
"""

import math

from lab.claims import Verdict, claim, nonempty, untested, verdict

from dml.runs.results import Run
from dml.runs.writers import Row

TIGHTER = 0.5  # largest ratio of ESSP's to SSP's mean staleness
IDLE, BUSY = 0.4, 0.05  # waiting shares of a worker; published: half and almost none
DROPPED = 0.93  # share of the features, published
EQUAL = 0.005  # largest relative increase of the objective by a filter
HALF = 0.55  # share of the words: half, plus headers of messages
LOST = 0.5  # test error above which a run counts as diverged
AS_GOOD = 0.05  # largest increase of the error of alpha0/tau over hard sync
RARE = 1e-4  # share of the gradients, published
ADAGRAD, PLAIN = "downpour_adagrad", "downpour_sgd"
IN_STEP = ("sync_sgd", "sync_adagrad")
SOONER = 0.02  # least relative difference of times

ByLaw = dict[str, dict[int, Row]]  # rows by delay distribution and by s


def of_kind(run: Run, kind: str) -> ByLaw:
    """Return the rows of SSP or ESSP by delay distribution and by s, ascending."""
    groups: ByLaw = {}
    for row in run.rows:
        name, _, s = row["consistency"].partition(":")
        if name == kind:
            groups.setdefault(row["delay"], {})[int(s or 1)] = row
    groups = {law: dict(sorted(by_s.items())) for law, by_s in groups.items()}
    return nonempty(groups, kind)


def objective(row: Row) -> float:
    """Return the last objective; infinite if it is not finite."""
    return math.inf if row["objective"] is None else row["objective"]


def largest(run: Run, kind: str) -> tuple[int, int, str]:
    """Count the delay distributions under which the largest s of a kind diverges.

    Returns:
      The count, the number of delay distributions, and the objectives as text.
    """
    count, texts = 0, []
    ssp = of_kind(run, "ssp")
    for law, rows in of_kind(run, kind).items():
        s = max(nonempty({s: row for s, row in rows.items() if s}, f"{kind}:1"))
        last, base = objective(rows[s]), objective(ssp[law][0])
        count += last >= rows[s]["objective_at_start"]
        texts.append(f"{law}: {kind}:{s} {last:.3g}, ssp:0 {base:.3g}")
    return count, len(texts), "; ".join(texts)


@claim("larger s diverges under high delay", "SSP, s = 10 (figure)")
def ssp_diverges(run: Run) -> Verdict:
    """SSP of the largest s ends no lower than it began, by every delay distribution."""
    count, distributions, measured = largest(run, "ssp")
    return verdict(
        count == distributions, measured, f"{count} of {distributions} diverge"
    )


@claim("ESSP does not", "ESSP, s = 10 (figure)")
def essp_converges(run: Run) -> Verdict:
    """ESSP of the largest s ends lower than it began, by every delay distribution."""
    count, distributions, measured = largest(run, "essp")
    return verdict(not count, measured, f"{count} of {distributions} diverge")


@claim("ESSP's staleness profile is tighter", "figure")
def essp_tighter(run: Run) -> Verdict:
    """At the largest s ESSP's mean staleness is half of SSP's or less.

    By every delay distribution.
    """
    ssp, essp = (of_kind(run, kind) for kind in ("ssp", "essp"))
    shares = [
        rows[max(rows)]["staleness_mean"] / ssp[law][max(ssp[law])]["staleness_mean"]
        for law, rows in essp.items()
    ]
    measured = ", ".join(f"{share:.2f}" for share in shares)
    return verdict(max(shares) <= TIGHTER, f"{measured} of SSP's", f"asked {TIGHTER:g}")


@claim("an interior best staleness exists", "tau = 8 of 0 ... 16")
def interior(run: Run) -> Verdict:
    """The time to the target is least at a tau that is neither 0 nor the largest.

    By every delay distribution.
    """
    texts, reasons, holds = [], [], []
    for rows in of_kind(run, "ssp").values():
        took = {tau: row["seconds_to_target"] for tau, row in rows.items()}
        times = {tau: one for tau, one in took.items() if one is not None}
        best = min(times, key=lambda tau: times[tau], default=None)
        holds.append(best is not None and min(took) < best < max(took))
        texts.append(", ".join(f"{tau}: {shown(one)}" for tau, one in took.items()))
        first = "no tau reaches it" if best is None else f"tau = {best} is first"
        reasons.append(first)
    measured = f"virtual s to the target by tau {'; '.join(texts)}"
    return verdict(all(holds), measured, "; ".join(reasons))


def shown(seconds: float | None) -> str:
    return "never" if seconds is None else f"{seconds:.0f}"


@claim("waiting goes as tau grows", "idle 50 % -> 1.7 % at 16")
def idle(run: Run) -> Verdict:
    """Workers wait 40 % of their time or more at tau = 0, at most 5 % at the largest.

    By every delay distribution.
    """
    texts, holds = [], []
    for rows in of_kind(run, "ssp").values():
        least, most = min(rows), max(rows)
        first, last = rows[least]["idle_share"], rows[most]["idle_share"]
        holds.append(first >= IDLE and last <= BUSY)
        texts.append(f"{first:.1%} at tau = {least}, {last:.1%} at {most}")
    return verdict(all(holds), "; ".join(texts), f"asked {IDLE:.0%} and {BUSY:.0%}")


CONSISTENCY = (ssp_diverges, essp_converges, essp_tighter, interior, idle)


@claim("the KKT filter saves features at an equal objective", "over 93 % dropped")
def filtered(run: Run, plain: Run) -> Verdict:
    """The filter drops over 93 % of the rows, and the objective is 0.5 % worse at most.

    The other objective is that of the same minibatches without the filter.
    """
    share = run.summary["sifted_share"]
    off = run.summary["objective"] / plain.summary["objective"] - 1
    measured = f"{share:.1%} dropped, objective {off:+.2%}"
    return verdict(share > DROPPED and off <= EQUAL, measured, f"asked {DROPPED:.0%}")


@claim("caching keys halves the traffic", "half")
def cached(run: Run, uncached: Run) -> Verdict:
    """Words sent with cached keys are at most 55 % of those without."""
    share = run.summary["words_sent"] / uncached.summary["words_sent"]
    why = "minibatches are drawn anew, so only a push repeats its pull's keys"
    return verdict(share <= HALF, f"{share:.2f} of the words", why)


@claim("a fixed rate diverges", "90 % error at n = 15 and 30")
def fixed(run: Run) -> Verdict:
    """At every n above 1 a fixed alpha0 ends with over half of the images wrong."""
    errors, measured = by_n(run, "fixed_error", ".1%")
    return verdict(min(errors) > LOST, measured, f"asked over {LOST:.0%}")


@claim("alpha0/tau survives, as hard sync", "about 18 %")
def divided(run: Run) -> Verdict:
    """At every n above 1 alpha0/tau ends within 5 points of hard sync's error."""
    errors, measured = by_n(run, "damped_error", ".1%")
    hard = run.summary["hard_sync_error"]
    most, measured = hard + AS_GOOD, f"{measured}; hard sync {hard:.1%}"
    return verdict(max(errors) <= most, measured, f"asked {most:.1%} at most")


@claim("staleness is in 0 ... 2n", "P(tau > 2n) < 1e-4")
def within(run: Run) -> Verdict:
    """At every n above 1 less than 1 in 10,000 gradients is staler than 2n."""
    shares, measured = by_n(run, "damped_beyond_2n", ".1e")
    return verdict(max(shares) < RARE, measured, f"asked less than {RARE:g}")


def by_n(run: Run, name: str, form: str) -> tuple[list[float], str]:
    """Return a number of the summary for every n above 1, and their text."""
    ends = f"_softsync_{name}"
    keys = (key.removesuffix(ends) for key in run.summary if key.endswith(ends))
    groups = {int(n): run.summary[n + ends] for n in keys if int(n) > 1}
    text = ", ".join(f"n = {n}: {value:{form}}" for n, value in groups.items())
    return list(nonempty(groups, ends).values()), text


SOFTSYNC = (fixed, divided, within)


@claim("AdaGrad makes Downpour faster than SGD does", "reported")
def adagrad_first(run: Run) -> Verdict:
    """Downpour with AdaGrad takes 2 % less time to the target than with SGD."""
    return sooner(run, (PLAIN,))


@claim("Downpour with AdaGrad beats sync, with stragglers", "reported")
def sync_beaten(run: Run) -> Verdict:
    """Downpour with AdaGrad takes 2 % less time to the target than both sync ones."""
    return sooner(run, IN_STEP)


def sooner(run: Run, others: tuple[str, ...]) -> Verdict:
    """Judge whether Downpour with AdaGrad is faster than each of the others."""
    strategies = (ADAGRAD, *others)
    took = [
        run.summary[f"{strategy}_seconds_to_target"] or math.inf
        for strategy in strategies
    ]
    if min(took) == math.inf:
        return untested("no strategy reaches the target")
    pairs = zip(strategies, took, strict=True)
    measured = ", ".join(f"{strategy} {seconds:.0f}" for strategy, seconds in pairs)
    holds = took[0] < (1 - SOONER) * min(took[1:])
    measured = f"virtual s to the target: {measured}"
    return verdict(holds, measured, f"asked {SOONER:.0%} less")


DOWNPOUR = (adagrad_first, sync_beaten)
