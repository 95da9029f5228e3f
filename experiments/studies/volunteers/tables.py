"""Columns and titles of the tables of volunteers.py."""

from collections.abc import Callable

from dml.runs.writers import Columns, Row
from studies.volunteers.formulas import MEGABITS


def optional(key: str, text: str) -> Callable[[Row], str]:
    """Return a function that formats a number of a row, or a dash for None."""
    return lambda row: "-" if row.get(key) is None else format(row[key], text)


TRAINED: Columns = {
    "hours": (6, "{hours:.3f}"),
    "evaluations": (11, "{evaluations:.1f}"),
    "accuracy": (8, "{accuracy:.3f}"),
}
PARTLY: Columns = {
    "each": (5, "{each:.3f}"),
    "consensus": (9, "{consensus:.3f}"),
    "MB per peer": (11, "{megabytes:,.0f}"),
    "lost a member": (13, "{lost:.1%}"),
    "late": (6, "{late:.1%}"),
}
COLUMNS: dict[str, Columns] = {
    "deadlines": {
        "arrivals": (29, "{delays}"),
        "best constant s": (15, "{best_constant:.4g}"),
        "members/s": (9, "{rate:.3g}"),
        "regret of arrivals": (18, "{regret:.1%}"),
        "regret of one constant": (22, "{one_regret:.1%} ({one_constant:.3g} s)"),
    },
    "balance": {
        "group": (31, "{group}"),
        "equal s": (8, "{equal:.1f}"),
        "proportional s": (14, "{proportional:.1f}"),
        "level s": (8, "{level:.1f}"),
        "owners": (6, "{owners}"),
    },
    "broadcast": {
        "pieces": (6, "{pieces}"),
        "peers": (5, "{peers}"),
        "bound": (5, "{bound}"),
        "cube": (5, optional("cube", "d")),
        "rarest first": (12, "{rarest_first:.1f}"),
        "tree": (5, "{tree}"),
        "swarm s": (8, optional("swarm_seconds", ".1f")),
        "tree s": (8, optional("tree_seconds", ".1f")),
    },
    "square_cube": {
        "width": (6, "{width:,}"),
        "compute ms": (10, "{milliseconds:.3g}"),
        **{f"{m} Mbit/s": (11, f"{{share_{m}:.1%}}") for m in MEGABITS},
    },
    "matchmaking": {
        "matchmakings": (12, "{matchmakings:,}"),
        "peers and rounds": (16, "{peers_and_rounds:,}"),
        "failures": (8, "{failures}"),
        "p50 s": (7, "{p50_seconds:.3f}"),
        "p99 s": (7, "{p99_seconds:.3f}"),
        "groups of one": (13, "{alone:.0%}"),
    },
    "volunteers": {"round": (5, "{round}"), **TRAINED, **PARTLY},
    "data_centre": {**TRAINED, "MB per peer": (11, "{megabytes:,.0f}")},
    "policies": {
        "evaluation": (10, "x {scale:g}"),
        "deadline": (16, "{policy}"),
        "rounds": (6, "{round}"),
        **TRAINED,
        **PARTLY,
    },
    "real": {
        "ranks": (5, "{ranks}"),
        "MB": (5, "{buffer:g}"),
        "rounds": (6, "{rounds}"),
        "search p50 ms": (13, "{search_p50_ms:.2f}"),
        "p99 ms": (8, "{search_p99_ms:.2f}"),
        "round p50 ms": (12, "{round_p50_ms:.2f}"),
        "p99 ms ": (8, "{round_p99_ms:.2f}"),
        "ring p50 ms": (11, "{ring_p50_ms:.2f}"),
        "complete": (8, "{complete:.1%}"),
    },
}
TITLES = {
    "deadlines": "members per second of groups by deadlines from arrivals, and by the "
    "one constant with the least regret at worst",
    "balance": "seconds of an average by shares of the owners",
    "broadcast": "rounds in which all peers have all pieces, each with one upload a "
    "round; seconds on virtual ranks",
    "square_cube": "share of time in communication, by width of a pipeline stage and "
    "by bandwidth",
    "matchmaking": "seeded matchmakings on virtual ranks, with lost messages and peers "
    "that vanish; seconds until a peer has its group",
    "volunteers": "volunteers with churn: evaluations per peer, accuracy of the mean "
    "weights and mean of the replicas",
    "data_centre": "the same gradient evaluations with an all-reduce after each",
    "policies": "fewer volunteers by deadline, with evaluations that take 1 and 10 "
    "times as long",
    "real": "matchmaking, and matchmaking with an average, on real ranks",
}
