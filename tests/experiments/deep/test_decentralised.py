"""decentralised.py: rows of every strategy, counted bytes, and bad input."""

import decentralised
import pytest
from studies.decentralised.training import STRATEGIES, WIDTHS

from dml.types import BadInput
from tests.experiments.run_folder import read_rows

SMALL = ["--ranks=4", "--steps=4", "--period=2", "--batch=2", "--lrs=0.1"]
WEIGHTS = 64 * WIDTHS[0] + WIDTHS[0] + WIDTHS[0] * 10 + 10


def test_a_row_for_each_strategy_and_skew_has_its_bytes_and_distances(tmp_path):
    skews = "similarity:1;dirichlet:0.1"
    argv = [f"--out={tmp_path}", *SMALL, f"--skews={skews}"]
    summary = decentralised.main(["decentralised.py", *argv])
    rows = {(row["strategy"], row["skew"]): row for row in read_rows(tmp_path)}
    assert rows.keys() == {(n, s) for n in STRATEGIES for s in skews.split(";")}
    for (name, skew), row in rows.items():
        replicated = name in ("synchronous", "local")
        equal = replicated or name == "diloco"
        assert (row["consensus"] < 1e-12) == equal
        assert row["consensus"] >= 0 and 0 <= row["each"] <= 1
        assert summary[f"{name}_{skew}_accuracy"] == row["accuracy"]
    sent = {name: rows[name, "similarity:1"]["bytes_sent"] for name in STRATEGIES}
    assert sent["gossip"] == 4 * 2 * 4 * WEIGHTS  # two neighbours, four updates
    assert sent["gradient_tracking"] == 2 * sent["gossip"]
    assert sent["push_sum"] == sent["gossip"] + 4 * 2 * 8  # and the weight
    assert sent["synchronous"] / sent["diloco"] == pytest.approx(2, rel=0.01)
    assert (tmp_path / "accuracy.svg").exists()


def test_a_row_for_each_topology_has_the_bytes_of_its_edges(tmp_path):
    graphs = "--topologies=ring,complete,one_peer_exponential"
    argv = [f"--out={tmp_path}", *SMALL, "--skews=similarity:1", graphs]
    argv += ["--strategies=gossip,relay", "--trees=chain,star"]
    summary = decentralised.main(["decentralised.py", *argv])
    sent = {row["name"]: row["bytes_sent"] for row in read_rows(tmp_path)}
    words = 4 * 4 * WEIGHTS  # of four updates to one neighbour
    assert sent.pop("relay on star") == sent.pop("relay on chain")  # 3 edges of 4 ranks
    assert sent == {
        "gossip on ring": 2 * words,
        "gossip on complete": 3 * words,
        "gossip on one_peer_exponential": words,
    }
    assert 0 <= summary["gossip on ring_similarity:1_accuracy"] <= 1


@pytest.mark.parametrize(
    "argv, message",
    [
        ("--strategies=gosip", "expected --strategies of synchronous"),
        ("--skews=sorted", "a skew of similarity:GAMMA"),
        ("--topologies=ring,exponential", "symmetric weights for d2"),
        ("--trees=chain,ring", "tree, chain, star for relay"),
        ("--lrs=fast", "lrs"),
    ],
)
def test_bad_input_is_refused_before_a_training(argv, message, tmp_path):
    with pytest.raises(BadInput, match=message):
        decentralised.main(["decentralised.py", f"--out={tmp_path}", *SMALL, argv])
