"""Claims of Zhang et al., Poseidon, ATC 2017, judged by sufficient_factors.py."""

from lab.claims import (
    Verdict,
    claim,
    grouped,
    matching,
    nonempty,
    rows,
    untested,
    verdict,
)

from dml.runs.results import Run
from studies.factors.throughput import SCHEMES

NETWORK, GBPS = "vgg19", 10  # of the claim on servers
SINGLE = [scheme for scheme in SCHEMES if scheme != "hybrid"]


@claim("words of a layer of 4096 x 4096, K = 32, P = 8", "3.7, 34 and 58.7 M")
def words_of_the_example(run: Run) -> Verdict:
    """The words counted on the busiest worker, rounded, are the published ones."""
    published = [row for row in rows(run, table="example") if row["published"]]
    counted = [row["counted"] / 1e6 for row in nonempty(published, "published")]
    printed = [f"{row['published'] / 1e6:g}" for row in published]
    rounded = [
        f"{words:.{len(text.partition('.')[2])}f}"
        for words, text in zip(counted, printed, strict=True)
    ]
    measured = ", ".join(f"{words:.2f}" for words in counted) + " M"
    return verdict(rounded == printed, measured, "sent and received, by node")


@claim("hybrid communication sends the fewest words", "the rule of Algorithm 1")
def fewest_words(run: Run) -> Verdict:
    """In every network the hybrid sends at most the words of each single scheme.

    Words are counted over all nodes.
    """
    best, servers = [], []
    for same in grouped(rows(run, table="throughput"), "network", "gbps").values():
        words = {row["scheme"]: row["words_sent"] for row in same}
        best.append(min(words[name] for name in SINGLE) / words["hybrid"])
        servers.append(words["server"] / words["hybrid"])
    measured = f"1 to {max(servers):.1f} times as many by servers"
    reason = f"{min(best):.2f} times as many or more by the best single scheme"
    return verdict(min(best) >= 1, measured, reason)


@claim("hybrid communication trains VGG19 faster than servers", "at 10 Gb/s")
def faster_than_servers(run: Run) -> Verdict:
    """At 10 Gb/s the speed-up of VGG19 by the hybrid exceeds that by servers."""
    cells = matching(rows(run, table="throughput"), network=NETWORK, gbps=GBPS)
    speedups = {row["scheme"]: row["speedup"] for row in cells}
    if not speedups:
        return untested(f"no rows of {NETWORK} at {GBPS} Gb/s")
    hybrid, server = speedups["hybrid"], speedups["server"]
    measured = f"{hybrid:.2f} and {server:.2f} on {cells[0]['nodes']} nodes"
    return verdict(hybrid > server, measured, "speed-up over one node")


@claim("dense layers of VGG19 by factors, convolutions by sums", "fc6, fc7 and fc8")
def convolutions_are_summed(run: Run) -> Verdict:
    """On every number of nodes no convolution of any network is sent by factors, and
    all dense layers of VGG19 are on 8 nodes.
    """
    cells = rows(run, table="layers")
    filters = nonempty(matching(cells, kind="convolution"), "convolution")
    wrong = [row["layer"] for row in filters if "factors" in row["both"] + row["apart"]]
    dense = matching(cells, network=NETWORK, kind="dense")
    by_factors = [
        row["layer"]
        for row in dense
        if dict(zip(row["nodes"], row["both"], strict=True)).get(8) == "factors"
    ]
    measured = f"{', '.join(by_factors) or 'none'} by factors"
    holds = not wrong and len(by_factors) == len(dense)
    return verdict(holds, measured, f"{len(filters)} sizes of convolutions are summed")


CLAIMS = (
    words_of_the_example,
    fewest_words,
    faster_than_servers,
    convolutions_are_summed,
)
