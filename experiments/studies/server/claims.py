"""Claims on parameter servers, judged by runs of five experiments.

    consistency.py   Ho et al. (SSP), NIPS 2013; Dai et al. (ESSP), AAAI 2015;
                     Li et al. (Parameter Server), OSDI 2014
    server_chain.py  Li et al. (Parameter Server), OSDI 2014
    server.py        Li et al. (Parameter Server), OSDI 2014
    softsync.py      Zhang et al., 2015
    downpour.py      Dean et al. (DistBelief), NIPS 2012

s and tau are staleness bounds of SSP and ESSP in clocks; for softsync tau is the
staleness of a gradient. A run diverges if its last objective is not below the objective
before training. Downpour is faster if it takes 2 % less time; a smaller difference is
the time of a few messages.
"""

import math

from lab.claims import Verdict, claim, nonempty, untested, verdict

from dml.runs.results import Run
from dml.runs.writers import Row

STALENESS_RATIO = 0.5  # largest ratio of ESSP's to SSP's mean staleness
# Waiting shares of a worker at the smallest and at the largest tau; published: half and
# almost none.
MIN_IDLE, MAX_IDLE = 0.4, 0.05
DROPPED_SHARE = 0.93  # share of the features, published
OBJECTIVE_INCREASE = 0.005  # largest relative increase of the objective by a filter
RECOVERY_SECONDS = 0.8  # published
WORD_RATIO = 0.55  # largest ratio of buffer elements sent: half, plus message headers
DIVERGED_ERROR = 0.5  # test error above which a run counts as diverged
ERROR_INCREASE = 0.05  # largest increase of the error of alpha0/tau over hard sync
STALE_SHARE = 1e-4  # share of the gradients, published
DOWNPOUR_ADAGRAD, DOWNPOUR_SGD = "downpour_adagrad", "downpour_sgd"
SYNCHRONOUS = ("sync_sgd", "sync_adagrad")
TIME_DIFFERENCE = 0.02  # least relative difference of times

ByDelay = dict[str, dict[int, Row]]  # rows by delay distribution and by s


def rows_of(run: Run, consistency: str) -> ByDelay:
    """Return the rows of "ssp" or "essp" by delay distribution and by s, ascending."""
    groups: ByDelay = {}
    for row in run.rows:
        name, _, s = row["consistency"].partition(":")
        if name == consistency:
            groups.setdefault(row["delay"], {})[int(s or 1)] = row
    groups = {delay: dict(sorted(by_s.items())) for delay, by_s in groups.items()}
    return nonempty(groups, consistency)


def objective(row: Row) -> float:
    """Return the last objective; infinite if it is not finite."""
    return math.inf if row["objective"] is None else row["objective"]


def count_diverged(run: Run, consistency: str) -> tuple[int, int, str]:
    """Count the delay distributions under which "ssp" or "essp" diverges.

    Returns:
      The count for the largest s above 0, the number of delay distributions, and the
      objectives as text.
    """
    count, texts = 0, []
    ssp = rows_of(run, "ssp")
    for delay, rows in rows_of(run, consistency).items():
        s = max(nonempty({s: row for s, row in rows.items() if s}, f"{consistency}:1"))
        last, base = objective(rows[s]), objective(ssp[delay][0])
        count += last >= rows[s]["objective_at_start"]
        texts.append(f"{delay}: {consistency}:{s} {last:.3g}, ssp:0 {base:.3g}")
    return count, len(texts), "; ".join(texts)


@claim("larger s diverges under high delay", "SSP, s = 10 (figure)")
def ssp_diverges(run: Run) -> Verdict:
    """With the largest s the objective of SSP does not fall, for each distribution."""
    count, distributions, measured = count_diverged(run, "ssp")
    return verdict(
        count == distributions, measured, f"{count} of {distributions} diverge"
    )


@claim("ESSP converges with larger s under high delay", "ESSP, s = 10 (figure)")
def essp_converges(run: Run) -> Verdict:
    """With the largest s the objective of ESSP falls, for each delay distribution."""
    count, distributions, measured = count_diverged(run, "essp")
    return verdict(not count, measured, f"{count} of {distributions} diverge")


@claim("ESSP's staleness profile is tighter", "figure")
def essp_tighter(run: Run) -> Verdict:
    """At the largest s ESSP's mean staleness is half of SSP's or less.

    This holds under every delay distribution.
    """
    ssp, essp = rows_of(run, "ssp"), rows_of(run, "essp")
    ratios = []
    for delay, rows in essp.items():
        base = ssp[delay][max(ssp[delay])]
        ratios.append(rows[max(rows)]["staleness_mean"] / base["staleness_mean"])
    measured = ", ".join(f"{ratio:.2f}" for ratio in ratios)
    holds = max(ratios) <= STALENESS_RATIO
    return verdict(holds, f"{measured} of SSP's", f"required {STALENESS_RATIO:g}")


@claim("an interior best staleness exists", "tau = 8 of 0 ... 16")
def interior(run: Run) -> Verdict:
    """The time to the target is least at a tau that is neither 0 nor the largest.

    This holds under every delay distribution.
    """
    texts, reasons, holds = [], [], []
    for rows in rows_of(run, "ssp").values():
        times = {tau: row["seconds_to_target"] for tau, row in rows.items()}
        finite = {tau: time for tau, time in times.items() if time is not None}
        best = min(finite, key=lambda tau: finite[tau], default=None)
        holds.append(best is not None and min(times) < best < max(times))
        texts.append(
            ", ".join(f"{tau}: {seconds_text(time)}" for tau, time in times.items())
        )
        reason = "no tau reaches it" if best is None else f"tau = {best} is fastest"
        reasons.append(reason)
    measured = f"virtual s to the target by tau {'; '.join(texts)}"
    return verdict(all(holds), measured, "; ".join(reasons))


def seconds_text(seconds: float | None) -> str:
    return "never" if seconds is None else f"{seconds:.0f}"


@claim("waiting decreases as tau grows", "idle 50 % -> 1.7 % at 16")
def idle(run: Run) -> Verdict:
    """Workers wait 40 % of their time or more at tau = 0, at most 5 % at the largest.

    This holds under every delay distribution.
    """
    texts, holds = [], []
    for rows in rows_of(run, "ssp").values():
        least, most = min(rows), max(rows)
        first, last = rows[least]["idle_share"], rows[most]["idle_share"]
        holds.append(first >= MIN_IDLE and last <= MAX_IDLE)
        texts.append(f"{first:.1%} at tau = {least}, {last:.1%} at {most}")
    reason = f"required {MIN_IDLE:.0%} and {MAX_IDLE:.0%}"
    return verdict(all(holds), "; ".join(texts), reason)


CONSISTENCY = (ssp_diverges, essp_converges, essp_tighter, interior, idle)


@claim("the KKT filter saves features at an equal objective", "over 93 % dropped")
def filtered(run: Run, plain: Run) -> Verdict:
    """The filter drops over 93 % of the rows, and the objective is 0.5 % worse at most.

    It is compared with a run on the same minibatches without the filter.
    """
    share = run.summary["filtered_share"]
    increase = run.summary["objective"] / plain.summary["objective"] - 1
    measured = f"{share:.1%} dropped, objective {increase:+.2%}"
    holds = share > DROPPED_SHARE and increase <= OBJECTIVE_INCREASE
    return verdict(holds, measured, f"required {DROPPED_SHARE:.0%}")


@claim("caching keys halves the traffic", "half")
def cached(run: Run, uncached: Run) -> Verdict:
    """Words sent with cached keys are at most 55 % of those without.

    All epochs have the same minibatches, so that pulls repeat lists of keys. If
    minibatches are drawn anew, only a push repeats the keys of a pull, and 75 % remain.
    """
    ratio = run.summary["words_sent"] / uncached.summary["words_sent"]
    reason = f"required {WORD_RATIO:.0%} at most"
    return verdict(ratio <= WORD_RATIO, f"{ratio:.2f} of the words", reason)


@claim("a dead server is replaced at once", "0.8 s")
def recovers(run: Run) -> Verdict:
    """Workers recover in 0.8 s at most, and no acknowledged update is lost.

    The recovery is the longest time from a death of a replica to the acknowledgement
    of an update that was sent after it. Virtual ranks know of a death after one
    latency, so that they test only whether updates are lost.
    """
    seconds, lost = run.summary["recovery_seconds"], run.summary["lost_updates"]
    if seconds is None and not lost:
        return untested("no update was sent after a death; pass more --clocks")
    unit = "virtual s" if run.summary["virtual"] else "s"
    recovery = "none" if seconds is None else f"{seconds:.2g} {unit}"
    measured = f"{recovery} after {run.summary['deaths']} deaths, {lost} lost"
    if run.summary["virtual"] and not lost:
        reason = "virtual ranks detect a death after one latency; use real ranks"
        return untested(reason, measured)
    holds = not lost and seconds <= RECOVERY_SECONDS
    return verdict(holds, measured, f"required {RECOVERY_SECONDS:g} s")


@claim("a fixed rate diverges", "90 % error at n = 15 and 30")
def fixed(run: Run) -> Verdict:
    """At every n above 1 the test error with a fixed alpha0 is over 50 %."""
    errors, measured = by_n(run, "fixed_error", ".1%")
    holds = min(errors) > DIVERGED_ERROR
    return verdict(holds, measured, f"required over {DIVERGED_ERROR:.0%}")


@claim("alpha0/tau has the error of hard sync", "about 18 %")
def divided(run: Run) -> Verdict:
    """At every n above 1 the test error of alpha0/tau is at most 5 points higher."""
    errors, measured = by_n(run, "scaled_error", ".1%")
    hard = run.summary["hard_sync_error"]
    most = hard + ERROR_INCREASE
    measured = f"{measured}; hard sync {hard:.1%}"
    return verdict(max(errors) <= most, measured, f"required {most:.1%} at most")


@claim("staleness is in 0 ... 2n", "P(tau > 2n) < 1e-4")
def within(run: Run) -> Verdict:
    """At every n above 1 less than 1 in 10,000 gradients is staler than 2n."""
    shares, measured = by_n(run, "scaled_beyond_2n", ".1e")
    holds = max(shares) < STALE_SHARE
    return verdict(holds, measured, f"required less than {STALE_SHARE:g}")


def by_n(run: Run, name: str, form: str) -> tuple[list[float], str]:
    """Return a number of the summary for every n above 1, and their text.

    run: run of softsync.py.
    name: key of the summary after <n>_softsync_.
    form: format of a number in the text.
    """
    suffix = f"_softsync_{name}"
    keys = (key.removesuffix(suffix) for key in run.summary if key.endswith(suffix))
    values = {int(n): run.summary[n + suffix] for n in keys if int(n) > 1}
    text = ", ".join(f"n = {n}: {value:{form}}" for n, value in values.items())
    return list(nonempty(values, suffix).values()), text


SOFTSYNC = (fixed, divided, within)


@claim("AdaGrad makes Downpour faster than SGD does", "reported")
def adagrad_first(run: Run) -> Verdict:
    """Downpour with AdaGrad takes 2 % less time to the target than with SGD."""
    return faster_adagrad(run, (DOWNPOUR_SGD,))


@claim(
    "Downpour with AdaGrad is faster than synchronous SGD with stragglers", "reported"
)
def sync_beaten(run: Run) -> Verdict:
    """Downpour with AdaGrad takes 2 % less time to the target than sync training."""
    return faster_adagrad(run, SYNCHRONOUS)


def faster_adagrad(run: Run, others: tuple[str, ...]) -> Verdict:
    """Judge whether Downpour with AdaGrad is faster than each of the others."""
    times = {
        strategy: run.summary[f"{strategy}_seconds_to_target"] or math.inf
        for strategy in (DOWNPOUR_ADAGRAD, *others)
    }
    if min(times.values()) == math.inf:
        return untested("no strategy reaches the target")
    measured = ", ".join(f"{name} {seconds:.0f}" for name, seconds in times.items())
    fastest_other = min(times[name] for name in others)
    holds = times[DOWNPOUR_ADAGRAD] < (1 - TIME_DIFFERENCE) * fastest_other
    measured = f"virtual s to the target: {measured}"
    return verdict(holds, measured, f"required {TIME_DIFFERENCE:.0%} less")


DOWNPOUR = (adagrad_first, sync_beaten)
