"""Updates of a network on virtual nodes, by scheme and bandwidth.

    device  │ forward │ backward fc8 │ fc7 │ fc6 │ conv5_4 … │ products of factors
    port              └ exchange fc8 ─────┴ fc7 ─┴ fc6 ── conv5_4 …

A node sends the gradient of a layer when the backward pass of the layer ends, and at
the same time computes the gradients of earlier layers. A layer of K rows, M inputs and
N outputs takes 2KMN operations forward and 4KMN backward. By factors it takes 2KMN
backward, and 2PKMN for the product of the factors of P nodes, after the backward pass.
An update ends when all products and exchanges have ended.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from dml import sim
from dml.runs.writers import Row
from dml.types import AllReduce, CountedComm
from dml.wire.collectives.all_gather_parts import all_gather_parts
from dml.wire.collectives.ring import ring_allreduce
from dml.wire.collectives.sharded_server import server_allreduce
from dml.wire.comm import Metered
from dml.wire.costs.factors import Nodes, choose
from studies.factors.layers import Layer, Network

SCALE = 256  # buffers are smaller by this factor, and bytes take longer by it
SEGMENT = 1 << 22  # bytes of a segment
ITEMSIZE = 4  # bytes of a word
GAMMA = 1e-10  # seconds per reduced byte
EAGER = 1 << 16  # bytes
SCHEMES = ("server", "allreduce", "factors", "hybrid")


class Cluster(NamedTuple):
    """Virtual nodes.

    Attributes:
      nodes: Number of nodes, each a worker and a server.
      gbps: Gb/s of a node's port, in each direction.
      latency: Seconds of a message.
      flops: Floating-point operations of a node per second.
    """

    nodes: int
    gbps: float
    latency: float
    flops: float

    @property
    def network(self) -> sim.Uniform:
        """Return the network of scaled buffers."""
        beta = 8e-9 / self.gbps
        return sim.Uniform(self.latency, SCALE * beta, SCALE * GAMMA, EAGER // SCALE)


class Exchange(NamedTuple):
    """The exchange of a layer.

    Attributes:
      scheme: "factors", "allreduce" or "server".
      words: Elements of the kernel, or of a node's factors.
      ready: Seconds from the start of the update to the gradient.
      product: Seconds of the product of all factors; 0 without factors.
    """

    scheme: str
    words: int
    ready: float
    product: float


def scheme_of(layer: Layer, examples: int, nodes: int, scheme: str) -> str:
    """Return the exchange of a layer in a scheme.

    Args:
      layer: The layer.
      examples: Number of examples of a node.
      nodes: Number of nodes.
      scheme: One of SCHEMES. "factors" sends dense layers by factors, and sums others
        by all-reduces; "hybrid" sends each layer by its cheapest exchange.
    """
    if scheme in ("server", "allreduce"):
        return scheme
    if layer.kind == "table" or scheme == "factors":
        return "factors" if layer.kind == "dense" else "allreduce"
    return choose(layer.sizes(examples), Nodes(nodes, nodes))


def exchanges(network: Network, cluster: Cluster, scheme: str) -> list[Exchange]:
    """Return the exchanges of an update, in the order of the backward pass."""
    examples, flops = network.examples, cluster.flops
    products = {  # seconds of a product of all rows of a layer
        layer: 2 * layer.sizes(examples).rows * layer.inputs * layer.outputs / flops
        for layer in network.layers
    }
    now, listed = sum(products.values()), []
    for layer in reversed(network.layers):
        chosen = scheme_of(layer, examples, cluster.nodes, scheme)
        sizes, by_factors = layer.sizes(examples), chosen == "factors"
        now += products[layer] * (1 if by_factors else 2)
        listed.append(
            Exchange(
                chosen,
                sizes.factors if by_factors else sizes.kernel,
                now,
                cluster.nodes * products[layer] if by_factors else 0.0,
            )
        )
    return listed


def run(listed: Sequence[Exchange], cluster: Cluster) -> tuple[float, int]:
    """Run an update on virtual nodes; return its seconds, and words sent by all."""
    sums: Mapping[str, AllReduce] = {
        "allreduce": partial(ring_allreduce, segment=SEGMENT // SCALE),
        "server": server_allreduce,
    }

    def program(comm: CountedComm) -> tuple[list[float], int]:
        ends = []
        for one in listed:
            comm.platform.compute(max(0.0, one.ready - comm.Wtime()))
            length = -(-one.words // SCALE)
            buffer = np.zeros(length, np.float32)
            if one.scheme == "factors":
                all_gather_parts(comm, buffer, np.full(comm.size, length))
            else:
                sums[one.scheme](comm, buffer)
            ends.append(comm.Wtime())
        return ends, comm.bytes_sent

    ranks = sim.run(lambda comm: program(Metered(comm)), cluster.nodes, cluster.network)
    ends = np.max([ends for ends, _ in ranks], axis=0)
    device = listed[-1].ready
    for one, end in zip(listed, ends.tolist(), strict=True):
        if one.product:
            device = max(device, end) + one.product
    words = sum(sent for _, sent in ranks) * SCALE // ITEMSIZE
    return max(device, float(ends[-1])), words


def rows(networks: Mapping[str, Network], clusters: Sequence[Cluster]) -> Iterator[Row]:
    """Yield a row for each network, bandwidth and scheme."""
    for name, network in networks.items():
        for cluster in clusters:
            one_node = cluster._replace(nodes=1)
            compute = exchanges(network, one_node, "allreduce")[-1].ready
            for scheme in SCHEMES:
                listed = exchanges(network, cluster, scheme)
                seconds, words = run(listed, cluster)
                yield {
                    "table": "throughput",
                    "network": name,
                    "nodes": cluster.nodes,
                    "gbps": cluster.gbps,
                    "scheme": scheme,
                    "seconds": seconds,
                    "computing": compute / seconds,
                    "speedup": cluster.nodes * compute / seconds,
                    "examples_per_second": cluster.nodes * network.examples / seconds,
                    "words_sent": words,
                    "by_factors": sum(one.scheme == "factors" for one in listed),
                }
