"""sufficient_factors.py: layers, exchanges on virtual nodes, bad input."""

import jax
import numpy as np
import pytest
import sufficient_factors
from studies.factors import example, layers, report, throughput
from studies.factors.layers import NETWORKS, Layer, Network
from studies.factors.throughput import Cluster, Exchange

from dml.models.factors import dense_layers
from dml.models.networks.alexnet import AlexNetSizes as Maps
from dml.models.networks.alexnet import alexnet
from dml.models.networks.transformer import SIZES, Shape, transformer
from dml.types import BadInput, Batch
from dml.wire.costs import allreduce as cost
from dml.wire.costs.factors import WORDS, Nodes, ProductSizes
from tests.experiments.run_folder import read_rows

EXAMPLES = 2
CLUSTER = Cluster(nodes=4, gbps=10, latency=1e-5, flops=1e12)


def shapes(*sizes, dtype=np.float32):
    return jax.ShapeDtypeStruct(sizes, dtype)


def traced(model, batch):
    """Return the params of a network, and the sizes of its dense layers."""
    params = model.init(jax.random.key(0))
    return params, dense_layers(model.loss, params, batch)


def test_layers_of_alexnet_are_those_of_the_network():
    model = alexnet((layers.IMAGE, layers.IMAGE, 3), layers.CLASSES, Maps(2, 11, 4))
    batch = Batch(shapes(EXAMPLES, 224, 224, 3), shapes(EXAMPLES, dtype=np.int32))
    table = list(layers.alexnet_layers(unit=2))
    dense = {f"{layer.name}/kernel": layer.sizes(EXAMPLES) for layer in table[5:]}
    params, found = traced(model, batch)
    assert found == dense
    for layer in table:
        kernel = params[layer.name]["kernel"]
        assert kernel.size == layer.inputs * layer.outputs


def test_layers_of_bert_are_those_of_the_network():
    shape = Shape(layers.VOCABULARY, layers.TOKENS, *SIZES["bert"]["tiny"])
    tokens, masked = (
        shapes(EXAMPLES, count, dtype=np.int32)
        for count in (layers.TOKENS, layers.MASKED)
    )
    batch = Batch(tokens, (masked, masked))
    _, found = traced(transformer(shape, causal=False), batch)
    table = list(layers.bert_layers("tiny"))
    assert found == {
        f"{layer.name}/kernel": layer.sizes(EXAMPLES)
        for layer in table
        if layer.kind == "dense"
    }
    assert table[-1][:2] == ("embed/tokens", "table")


def test_vgg19_has_the_published_number_of_parameters():
    network = NETWORKS["vgg19"]
    biases = sum(layer.outputs for layer in network.layers)
    assert len(network.layers) == 19
    assert network.parameters + biases == 143_667_240


def test_an_update_takes_the_predicted_seconds_of_its_exchanges():
    words = 4 * throughput.SCALE * 600
    rates = cost.Rates(*CLUSTER.network[:3])
    length = words // throughput.SCALE
    job = cost.Job(4, length, segment=throughput.SEGMENT // throughput.SCALE)
    ring = cost.seconds("ring", job, rates)
    gather = cost.gather_seconds(4, 4 * length * 4, rates)
    one = Exchange("allreduce", words, 0.5, 0.0)
    assert throughput.run([one], CLUSTER)[0] == pytest.approx(0.5 + ring)
    # the second exchange waits for the port, and the product for its factors
    two = Exchange("factors", words, 0.5 + ring / 2, 0.25)
    seconds, sent = throughput.run([one, two], CLUSTER)
    assert seconds == pytest.approx(0.5 + ring + gather + 0.25)
    assert sent == 2 * 3 * words + 4 * 3 * words
    # it computes its product while the port is busy with the next exchange
    three = Exchange("allreduce", words, 0.5 + ring, 0.0)
    seconds, _ = throughput.run([two, three], CLUSTER)
    assert seconds == pytest.approx(0.5 + ring / 2 + gather + max(0.25, ring))


def test_ready_times_add_up_the_operations_of_layers():
    network = Network(
        (Layer("a", "convolution", 2, 5, 7), Layer("b", "dense", 1, 7, 3)), 4
    )
    first, second = 2 * 8 * 5 * 7 / 1e12, 2 * 4 * 7 * 3 / 1e12
    by_sums = throughput.exchanges(network, CLUSTER, "server")
    assert [one.words for one in by_sums] == [21, 35]
    ends = [first + 3 * second, 3 * first + 3 * second]
    assert [one.ready for one in by_sums] == pytest.approx(ends)
    head, tail = throughput.exchanges(network, CLUSTER, "factors")
    assert (head.scheme, head.words) == ("factors", 4 * 10)
    assert head.ready == pytest.approx(first + 2 * second)
    assert head.product == pytest.approx(4 * second)
    assert (tail.scheme, tail.product) == ("allreduce", 0.0)
    assert [one.scheme for one in throughput.exchanges(network, CLUSTER, "hybrid")] == [
        "allreduce",
        "allreduce",
    ]


def test_words_are_counted_on_the_busiest_worker():
    sizes = ProductSizes(3, 16, 32)
    counted = {row["role"]: row["counted"] for row in example.rows(sizes)}
    for role in example.ROLES:
        assert counted[role.name] == WORDS[role.scheme](sizes, role.nodes)
    assert counted["worker by factors"] == 2 * 3 * 7 * 48
    assert WORDS["server"](sizes, Nodes(8, 8, False)) == 2 * 16 * 32


def test_equal_layers_are_one_row_of_choices():
    rows = list(report.layer_rows({"bert_base": NETWORKS["bert_base"]}, (2, 8)))
    counts = {row["layer"]: row["count"] for row in rows}
    assert counts["block_0/qkv"] == 12 and sum(counts.values()) == 4 * 12 + 2
    table = rows[-1]
    assert table["last_nodes"] is None and table["both"] == ["allreduce"] * 2
    assert table["apart"] == ["allreduce", "server"]
    assert report.spread(["factors", "server"], (2, 16)) == "F  S"


def test_the_command_tabulates_runs_and_draws(tmp_path):
    argv = ["--networks=vgg19", "--gbps=1,10", "--nodes=2,8", "--ranks=8"]
    summary = sufficient_factors.main(["x", f"--out={tmp_path}", *argv])
    rows = read_rows(tmp_path)
    assert {row["table"] for row in rows} == {"example", "layers", "throughput"}
    fast = {
        row["scheme"]: row
        for row in rows
        if row["table"] == "throughput" and row["gbps"] == 10
    }
    assert fast["hybrid"]["seconds"] < fast["server"]["seconds"]
    assert fast["hybrid"]["words_sent"] == fast["factors"]["words_sent"]
    assert fast["hybrid"]["by_factors"] == 3
    assert summary["speedup_vgg19_hybrid_10"] == fast["hybrid"]["speedup"]
    assert summary["vgg19_pays_up_to_gbps"] == 10
    assert (tmp_path / "throughput.svg").exists()


@pytest.mark.parametrize(
    "flag, message",
    [
        ("--networks=lenet", "lenet"),
        ("--gbps=0,1", "expected numbers above 0 in --gbps"),
        ("--nodes=0", "expected .* --nodes"),
    ],
)
def test_bad_input_is_refused_before_any_run(tmp_path, flag, message):
    with pytest.raises(BadInput, match=message):
        sufficient_factors.main(["x", f"--out={tmp_path / 'out'}", flag])
    assert not (tmp_path / "out").exists()
