"""Claims of Zhang et al., Staleness-Aware Async-SGD, 2015, judged by softsync.py."""

from claims import Verdict, claim, nonempty, verdict

from dml.metrics.results import Run

LOST = 0.5  # of held-out images: an error above it is divergence
AS_GOOD = 0.05  # of the error: what alpha0/tau may lose against hard sync
RARE = 1e-4  # of the gradients, published


@claim("a fixed rate diverges", "90 % error at n = 15 and 30")
def fixed(run: Run) -> Verdict:
    """At every n above 1 a fixed alpha0 ends with over half of the images wrong."""
    errors = by_n(run, "fixed_error")
    return verdict(min(errors.values()) > LOST, shown(errors), f"asked over {LOST:.0%}")


@claim("alpha0/tau survives, as hard sync", "about 18 %")
def divided(run: Run) -> Verdict:
    """At every n above 1 alpha0/tau ends within 5 points of hard sync's error."""
    errors, hard = by_n(run, "damped_error"), run.summary["hard_sync_error"]
    most = hard + AS_GOOD
    ours = f"{shown(errors)}; hard sync {hard:.1%}"
    return verdict(max(errors.values()) <= most, ours, f"asked {most:.1%} at most")


@claim("staleness is in 0 ... 2n", "P(tau > 2n) < 1e-4")
def within(run: Run) -> Verdict:
    """At every n above 1 less than 1 in 10,000 gradients is staler than 2n."""
    stale = by_n(run, "damped_beyond_2n")
    ours = ", ".join(f"n = {n}: {share:.1e}" for n, share in stale.items())
    return verdict(max(stale.values()) < RARE, ours, f"asked less than {RARE:g}")


def by_n(run: Run, name: str) -> dict[int, float]:
    """Return a number of the summary by n, for all n above 1."""
    ends = f"_softsync_{name}"
    found = {
        int(key.removesuffix(ends)): value
        for key, value in run.summary.items()
        if key.endswith(ends)
    }
    return nonempty({n: value for n, value in found.items() if n > 1}, ends)


def shown(errors: dict[int, float]) -> str:
    return ", ".join(f"n = {n}: {error:.1%}" for n, error in errors.items())


CLAIMS = (fixed, divided, within)
