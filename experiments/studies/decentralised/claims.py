"""Claims on training without a centre, judged by a run of decentralised.py.

Lian et al., D-PSGD, NIPS 2017; Assran et al., SGP, ICML 2019; Vogels et al., RelaySGD,
NeurIPS 2021. Its table 2 is for CIFAR-10 on 16 workers without momentum, with the best
learning rate of each method. Its accuracies are of single replicas (`each`): each
worker of epfml/relaysgd evaluates its own parameters.
"""

from lab.claims import Claim, Verdict, claim, rows, verdict

from dml.runs.results import Run
from dml.runs.writers import Row

RANDOM, SKEWED = "similarity:1", "dirichlet:0.01"
ROUNDING = 1e-9  # tolerance of differences of accuracies
POINT = 0.01
OF_ALL_REDUCE = 0.012  # accuracy that SGP lost in the paper
OF_RELAY = 0.024  # accuracy that RelaySGD lost on binary trees in the paper
SGP_HOURS, ALL_REDUCE_HOURS = 1.6, 5


def row(run: Run, strategy: str, skew: str) -> Row:
    """Return the most accurate row of a strategy and skew, over topologies."""
    chosen = rows(run, strategy=strategy, skew=skew)
    return max(chosen, key=lambda row: row["accuracy"])


def percent(key: str, *named: Row) -> str:
    return ", ".join(f"{row['name']} {row[key]:.1%}" for row in named)


def scale(run: Run) -> str:
    return f"{run.flags['steps']} updates, {run.flags['seeds']} seeds"


def within(run: Run, strategy: str, skew: str, lost: float, key: str) -> Verdict:
    """Judge whether a strategy is at most `lost` less accurate than synchronous.

    Args:
      run: Run of decentralised.py.
      strategy: Name of the strategy.
      skew: Skew of the shards.
      lost: Accuracy that may be lost.
      key: "accuracy" for the mean replica, or "each" for single replicas.
    """
    judged, exact = row(run, strategy, skew), row(run, "synchronous", skew)
    holds = judged[key] >= exact[key] - lost - ROUNDING
    return verdict(holds, percent(key, judged, exact), f"{skew}, {scale(run)}")


def faster(run: Run, strategy: str, share: float) -> Verdict:
    """Judge the time of a strategy's exchanges relative to a ring all-reduce."""
    judged, exact = (row(run, name, RANDOM) for name in (strategy, "synchronous"))
    measured = f"{judged['seconds']:.2f} s, all-reduce {exact['seconds']:.2f} s"
    reason = "exchanges without computation, 1 Gb/s and 1 ms, ring all-reduce"
    return verdict(judged["seconds"] <= share * exact["seconds"], measured, reason)


@claim("D-PSGD converges like centralised SGD", "equal loss at equal epochs (figure)")
def gossip_converges(run: Run) -> Verdict:
    """On random shards gossip is at most 1 point less accurate than synchronous."""
    return within(run, "gossip", RANDOM, POINT, "accuracy")


@claim("D-PSGD is faster on a slow network", "up to 10 times")
def gossip_is_faster(run: Run) -> Verdict:
    """The exchanges of gossip take less virtual time than a ring all-reduce."""
    return faster(run, "gossip", 1 - ROUNDING)


@claim("SGP is within 1.2 points of AllReduce SGD", "within 1.2 %, ImageNet, 32 nodes")
def sgp_is_accurate(run: Run) -> Verdict:
    """On random shards push-sum is at most 1.2 points below synchronous."""
    return within(run, "push_sum", RANDOM, OF_ALL_REDUCE, "accuracy")


@claim("SGP takes a third of the time on Ethernet", "1.6 hours, AllReduce over 5")
def sgp_is_faster(run: Run) -> Verdict:
    """Exchanges of push-sum take 1.6/5 of the virtual time of an all-reduce at most."""
    return faster(run, "push_sum", SGP_HOURS / ALL_REDUCE_HOURS)


@claim(
    "RelaySGD is as accurate as an all-reduce on skewed shards",
    "alpha = 0.01: chain 86.5 %, binary trees 84.6 %, all-reduce 87.0 %",
)
def relay_is_accurate(run: Run) -> Verdict:
    """On dirichlet:0.01 replicas of relay are at most 2.4 points below synchronous."""
    return within(run, "relay", SKEWED, OF_RELAY, "each")


@claim(
    "RelaySGD is more accurate than D-PSGD and D2 on skewed shards",
    "alpha = 0.01: chain 86.5 %, D-PSGD 53.9 %, D2 38.2 %",
)
def relay_order(run: Run) -> Verdict:
    """On dirichlet:0.01 replicas of relay are more accurate than gossip's and d2's."""
    relay, *others = (row(run, name, SKEWED) for name in ("relay", "gossip", "d2"))
    holds = all(relay["each"] > other["each"] for other in others)
    return verdict(holds, percent("each", relay, *others), f"{SKEWED}, {scale(run)}")


@claim(
    "skew costs D-PSGD accuracy, and RelaySGD little",
    "alpha = 1 to 0.01: D-PSGD 87.4 to 53.9 %, RelaySGD 87.3 to 86.5 %",
)
def relay_skew(run: Run) -> Verdict:
    """On dirichlet:0.01, replicas lose more accuracy by gossip than by relay."""
    lost, texts = [], []
    for name in ("relay", "gossip"):
        random, skewed = (row(run, name, skew)["each"] for skew in (RANDOM, SKEWED))
        lost.append(random - skewed)
        texts.append(f"{name} {random:.1%} to {skewed:.1%}")
    return verdict(lost[0] < lost[1], ", ".join(texts), scale(run))


D_PSGD: tuple[Claim, ...] = (gossip_converges, gossip_is_faster)
SGP: tuple[Claim, ...] = (sgp_is_accurate, sgp_is_faster)
RELAY: tuple[Claim, ...] = (relay_is_accurate, relay_order, relay_skew)
CLAIMS = (*D_PSGD, *SGP, *RELAY)
