"""Claims of Li et al., Parameter Server, OSDI 2014, judged by runs of server.py."""

from claims import Verdict, claim, verdict

from dml.metrics.results import Run

DROPPED = 0.93  # of the features, published
EQUAL = 0.005  # of an objective: what a filter may cost
HALF = 0.55  # of the words: half, and the headers of messages


@claim("the KKT filter saves features at an equal objective", "over 93 % dropped")
def filtered(run: Run, plain: Run) -> Verdict:
    """The filter drops over 93 % of the rows, and the objective is 0.5 % worse at most.

    The other objective is that of the same minibatches without the filter.
    """
    share = run.summary["sifted_share"]
    off = run.summary["objective"] / plain.summary["objective"] - 1
    ours = f"{share:.1%} dropped, objective {off:+.2%}"
    return verdict(share > DROPPED and off <= EQUAL, ours, f"asked {DROPPED:.0%}")


@claim("caching keys halves the traffic", "half")
def cached(run: Run, uncached: Run) -> Verdict:
    """Words sent with cached keys are at most 55 % of those without."""
    share = run.summary["words_sent"] / uncached.summary["words_sent"]
    why = "minibatches are drawn anew, so only a push repeats its pull's keys"
    return verdict(share <= HALF, f"{share:.2f} of the words", why)
