"""Virtual networks, one a file: pure arithmetic, vectorised over messages."""

from dml.sim.networks.degraded import Degraded
from dml.sim.networks.dragonfly import Dragonfly
from dml.sim.networks.fat_tree import FatTree
from dml.sim.networks.graph import Graph
from dml.sim.networks.hosts import Hosts
from dml.sim.networks.named import NETWORKS, network
from dml.sim.networks.slim_fly import SlimFly
from dml.sim.networks.torus import Torus
from dml.sim.networks.uniform import Uniform

__all__ = [
    "NETWORKS",
    "Degraded",
    "Dragonfly",
    "FatTree",
    "Graph",
    "Hosts",
    "SlimFly",
    "Torus",
    "Uniform",
    "network",
]
