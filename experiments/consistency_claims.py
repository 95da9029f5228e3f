"""Claims on bounded staleness, judged by a run of consistency.py.

Ho et al. (SSP), NIPS 2013; Dai et al. (ESSP), AAAI 2015; Li et al. (Parameter Server),
OSDI 2014. A run diverges if its last objective is not below the objective before
training. (Twice the objective of s = 0 depends on how well s = 0 learns, and lets a run
that has learned nothing pass as one that converges.)
"""

import math
from collections.abc import Mapping, Sequence

from claims import Verdict, claim, nonempty, verdict

from dml.metrics.results import Run
from dml.metrics.writers import Row

TIGHTER = 0.5  # of SSP's mean staleness
IDLE, BUSY = 0.4, 0.05  # of a worker's time: about half waits, published, or hardly any

ByLaw = dict[str, dict[int, Row]]  # delay distributions, then s


def of_kind(rows: Sequence[Row], kind: str) -> ByLaw:
    """Return the rows of SSP or ESSP by delay distribution and by s, ascending."""
    found: ByLaw = {}
    for row in rows:
        name, _, s = row["consistency"].partition(":")
        if name == kind:
            found.setdefault(row["delay"], {})[int(s or 1)] = row
    return {law: dict(sorted(some.items())) for law, some in found.items()}


def objective(row: Row) -> float:
    """Return the last objective; infinite if it is not finite."""
    return math.inf if row["objective"] is None else row["objective"]


def largest_diverges(run: Run, kind: str) -> tuple[dict[str, bool], str]:
    """Return by delay distribution whether the largest s of a kind diverges."""
    found, texts = {}, []
    ssp = of_kind(run.rows, "ssp")
    for law, rows in nonempty(of_kind(run.rows, kind), kind).items():
        s = max(nonempty({s: row for s, row in rows.items() if s}, f"{kind}:1"))
        last, base = objective(rows[s]), objective(ssp[law][0])
        found[law] = last >= rows[s]["objective_at_start"]
        texts.append(f"{law}: {kind}:{s} {last:.3g}, ssp:0 {base:.3g}")
    return found, "; ".join(texts)


def diverging(found: Mapping[str, bool]) -> str:
    return f"{sum(found.values())} of {len(found)} diverge"


@claim("larger s diverges under high delay", "SSP, s = 10 (figure)")
def ssp_diverges(run: Run) -> Verdict:
    """SSP of the largest s ends no lower than it began, by every delay distribution."""
    found, ours = largest_diverges(run, "ssp")
    return verdict(all(found.values()), ours, diverging(found))


@claim("ESSP does not", "ESSP, s = 10 (figure)")
def essp_converges(run: Run) -> Verdict:
    """ESSP of the largest s ends lower than it began, by every delay distribution."""
    found, ours = largest_diverges(run, "essp")
    return verdict(not any(found.values()), ours, diverging(found))


@claim("ESSP's staleness profile is tighter", "figure")
def essp_tighter(run: Run) -> Verdict:
    """At the largest s ESSP's mean staleness is half of SSP's or less.

    By every delay distribution.
    """
    ssp, essp = (nonempty(of_kind(run.rows, kind), kind) for kind in ("ssp", "essp"))
    shares = [
        list(rows.values())[-1]["staleness_mean"]
        / list(ssp[law].values())[-1]["staleness_mean"]
        for law, rows in essp.items()
    ]
    ours = ", ".join(f"{share:.2f}" for share in shares)
    return verdict(max(shares) <= TIGHTER, f"{ours} of SSP's", f"asked {TIGHTER:g}")


@claim("an interior best staleness exists", "tau = 8 of 0 ... 16")
def interior(run: Run) -> Verdict:
    """The time to the target is least at a tau that is neither 0 nor the largest.

    By every delay distribution.
    """
    texts, reasons, holds = [], [], []
    for rows in nonempty(of_kind(run.rows, "ssp"), "ssp").values():
        took = {tau: row["seconds_to_target"] for tau, row in rows.items()}
        times = {tau: one for tau, one in took.items() if one is not None}
        best = min(times, key=lambda tau: times[tau], default=None)
        holds.append(best is not None and min(took) < best < max(took))
        texts.append(
            ", ".join(
                f"{tau}: {'never' if one is None else f'{one:.0f}'}"
                for tau, one in took.items()
            )
        )
        reasons.append(
            "no tau reaches it" if best is None else f"tau = {best} is first"
        )
    ours = f"virtual s to the target by tau {'; '.join(texts)}"
    return verdict(all(holds), ours, "; ".join(reasons))


@claim("waiting goes as tau grows", "idle 50 % -> 1.7 % at 16")
def idle(run: Run) -> Verdict:
    """Workers wait 40 % of their time or more at tau = 0, at most 5 % at the largest.

    By every delay distribution.
    """
    texts, holds = [], []
    for rows in nonempty(of_kind(run.rows, "ssp"), "ssp").values():
        taus = list(rows)
        first, last = (rows[tau]["idle_share"] for tau in (taus[0], taus[-1]))
        holds.append(first >= IDLE and last <= BUSY)
        texts.append(f"{first:.1%} at tau = {taus[0]}, {last:.1%} at {taus[-1]}")
    return verdict(all(holds), "; ".join(texts), f"asked {IDLE:.0%} and {BUSY:.0%}")


CLAIMS = (ssp_diverges, essp_converges, essp_tighter, interior, idle)
