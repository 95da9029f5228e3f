"""Columns and titles of the tables of averaging.py."""

from collections.abc import Callable

from dml.runs.writers import Columns, Row

MINUS = "-"


def optional(key: str, text: str) -> Callable[[Row], str]:
    """Return a function that formats a number of a row, or a dash for None."""
    return lambda row: MINUS if row.get(key) is None else format(row[key], text)


PROTOCOL = {"protocol": (20, "{protocol}")}
ROUNDS = {
    "to 1e-4": (8, optional("rounds_1e-4", ",")),
    "to 1e-9": (8, optional("rounds_1e-9", ",")),
}
COLUMNS: dict[str, Columns] = {
    "topologies": {
        "topology": (20, "{topology}"),
        "p": (9, "{p:,}"),
        "messages/peer": (13, "{degree:.2f}"),
        "spectral gap": (12, "{gap:.3g}"),
        "1e-9 by the gap": (15, optional("rounds_by_gap", ",")),
    },
    "rounds": {
        "p": (9, "{p:,}"),
        **PROTOCOL,
        "": (9, "{kind}"),
        **ROUNDS,
        "MB per peer": (11, optional("megabytes", ".4g")),
        "virtual ms": (10, optional("milliseconds", ".4g")),
        "run - evaluated": (15, optional("difference", ".0e")),
    },
    "printed": {
        "peers": (5, "{peers}"),
        "absence": (7, "{absence:g}"),
        "method": (20, "{method}"),
        "paper 1e-9": (10, optional("published_1e-9", ".1f")),
        "ours": (5, "{rounds_1e-9:.1f}"),
        "paper 1e-4": (10, optional("published_1e-4", ".1f")),
        "ours ": (5, "{rounds_1e-4:.1f}"),
        "mean moves by": (13, "{mean_error:.0e}"),
    },
    "contractions": {
        "": (6, "{kind}"),
        "peers": (5, "{peers}"),
        "groups": (6, "{groups}"),
        "measured": (19, "{measured:.5f} ± {error:.5f}"),
        "exact": (8, "{exact:.5f}"),
        "published": (9, "{published:.5f}"),
    },
    "teapots": {
        "peers": (9, "{peers:,}"),
        "absence": (7, "{absence:g}"),
        "round": (5, "{round}"),
        "variance": (23, "{variance:.4g} ± {error:.1g}"),
        "exact": (10, "{exact:.4g}"),
        "s": (6, "{seconds:.2f}"),
    },
    "faults": {
        "faults": (13, "{faults}"),
        **PROTOCOL,
        "p": (5, "{p}"),
        **ROUNDS,
        "mean moves by": (13, "{mean_error:.0e}"),
        "run - evaluated": (15, "{difference:.0e}"),
    },
}
TITLES = {
    "topologies": "graphs of gossip; the gap of a graph of one peer is that of a cycle "
    "of its rounds",
    "rounds": "rounds to a variance of 1e-4 and 1e-9, from 1; MB for 1e-9",
    "printed": "Moshpit's printed table: rounds to 1e-9 and 1e-4; and the one-peer "
    "exponential graph with halves",
    "contractions": "variance after one round in random groups, over the variance "
    "before; chosen: each peer chooses its group",
    "teapots": "a full grid with absent peers: mean of restarts ± standard error; "
    "seconds of all rounds of a restart",
    "faults": "methods with lost, late and absent messages",
}
