"""The medium of messages: collectives by hand over point-to-point calls."""

from dml.wire.messages.butterfly import butterfly_allreduce
from dml.wire.messages.halving_doubling import halving_doubling_allreduce
from dml.wire.messages.hierarchical import hierarchical_allreduce
from dml.wire.messages.native import native_allreduce
from dml.wire.messages.ring import ring_allreduce
from dml.wire.messages.shared import shared_allreduce
from dml.wire.messages.star import star_allreduce
from dml.wire.messages.tree import tree_allreduce

ALLREDUCE = {
    "star": star_allreduce,
    "tree": tree_allreduce,
    "butterfly": butterfly_allreduce,
    "halving_doubling": halving_doubling_allreduce,
    "ring": ring_allreduce,
    "hierarchical": hierarchical_allreduce,
    "shared": shared_allreduce,
    "native": native_allreduce,
}
