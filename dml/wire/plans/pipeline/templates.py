"""Pipeline templates (Oobleck, Jang 2023): pipelines for every number of nodes.

    n0 = 3, f = 1: templates of 3 and 4 nodes

    9 nodes   ▐ 3 ▌▐ 3 ▌▐ 3 ▌
    8 nodes   ▐  4 ▌▐  4 ▌          a pipeline of 3 lost a node, and is dissolved
    7 nodes   ▐  4 ▌▐ 3 ▌           a pipeline of 4 lost a node
    6 nodes   ▐ 3 ▌▐ 3 ▌            (f+1) n0: with fewer nodes the run ends

A model needs n0 nodes or more. A template is a pipeline with a stage per node, which is
planned before the run. With f+1 pipelines, f failures leave a replica of the model.
k pipelines of n0 … n_max nodes cover all numbers of nodes from k·n0 to k·n_max. These
intervals overlap for all k > f if and only if

    n_max ≥ n0 + ⌈(n0 - 1)/(f + 1)⌉

so that every number of nodes from (f+1) n0 on is covered without an idle node: it is
the problem of Frobenius for consecutive sizes. Up to N nodes the smallest n_max is the
maximum of ⌈N'/⌊N'/n0⌋⌉ over (f+1) n0 ≤ N' ≤ N.

After a failure the fewest pipelines change: those that lost nodes, and those that
exchange nodes with them.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import combinations
from typing import NamedTuple, TypeAlias

from dml.types import BadInput

Pipeline: TypeAlias = tuple[int, ...]  # numbers of its nodes, one per stage


class Templates(NamedTuple):
    """Consecutive sizes of pipelines, in nodes.

    Attributes:
      least: n0, the fewest nodes that the model fits on.
      most: n_max, the largest size.
      failures: f, number of simultaneous failures that leave a replica.
    """

    least: int
    most: int
    failures: int

    @property
    def sizes(self) -> range:
        return range(self.least, self.most + 1)

    @property
    def fewest_nodes(self) -> int:
        """Return the fewest nodes with f+1 pipelines."""
        return (self.failures + 1) * self.least

    def counts(self, nodes: int, fewest: int = 0) -> range:
        """Return the numbers of pipelines that use all nodes, in ascending order.

        Args:
          nodes: Number of nodes.
          fewest: Least number of pipelines.
        """
        return range(max(fewest, -(-nodes // self.most)), nodes // self.least + 1)


@lru_cache(maxsize=64)
def make_templates(least: int, failures: int, nodes: int) -> Templates:
    """Return the fewest templates that cover all numbers of nodes up to `nodes`.

    Args:
      least: n0, the fewest nodes that the model fits on.
      failures: f, number of simultaneous failures that leave a replica.
      nodes: N, number of nodes at the start.
    """
    if least < 1 or failures < 0:
        raise BadInput(
            f"expected a pipeline of 1 node or more and 0 failures or more, got {least}"
            f" and {failures}; correct them"
        )
    fewest = (failures + 1) * least
    if nodes < fewest:
        raise BadInput(
            f"expected {fewest} nodes or more for {failures + 1} pipelines of {least} "
            f"nodes, got {nodes}; use more nodes, or tolerate fewer failures"
        )
    last = min(nodes, (failures + 2) * least - 1)  # with more nodes, ⌈N'/k⌉ is smaller
    most = max(-(-n // (n // least)) for n in range(fewest, last + 1))
    return Templates(least, most, failures)


def sizes_of(templates: Templates, nodes: int) -> list[int]:
    """Return the sizes of the pipelines at a start: as many as possible, balanced.

    Args:
      templates: Sizes of pipelines.
      nodes: Number of nodes; all of them are used.
    """
    counts = templates.counts(nodes, templates.failures + 1)
    if not counts:
        raise BadInput(
            f"expected nodes for {templates.failures + 1} pipelines or more of "
            f"{templates.least} to {templates.most} nodes, got {nodes}; start from a "
            f"checkpoint with {templates.fewest_nodes} nodes or more"
        )
    size, larger = divmod(nodes, counts[-1])
    return [size + 1] * larger + [size] * (counts[-1] - larger)


def instantiate(templates: Templates, nodes: Sequence[int]) -> list[Pipeline]:
    """Return the pipelines of consecutive nodes at a start.

    Args:
      templates: Sizes of pipelines.
      nodes: Numbers of the nodes.
    """
    left = iter(nodes)
    sizes = sizes_of(templates, len(nodes))
    return [tuple(next(left) for _ in range(size)) for size in sizes]


def reinstantiate(
    templates: Templates, pipelines: Sequence[Pipeline], dead: Sequence[int]
) -> list[Pipeline]:
    """Return the pipelines of the other nodes after some nodes have died.

    The fewest pipelines change; then as many pipelines remain as possible, and the
    fewest nodes move to another pipeline.

    Args:
      templates: Sizes of pipelines.
      pipelines: Pipelines before the failure.
      dead: Numbers of the nodes that died.
    """
    gone = set(dead)
    living = [tuple(node for node in old if node not in gone) for old in pipelines]
    pairs = list(zip(living, pipelines, strict=True))
    intact = [new for new, old in pairs if new == old]
    broken = [new for new, old in pairs if new != old]
    if not broken:
        return intact
    for count in range(len(intact) + 1):
        best = min(candidates(templates, intact, broken, count), default=None)
        if best:
            return best[-1]
    sizes_of(templates, sum(map(len, living)))  # raises: there are too few nodes
    raise AssertionError("all pipelines together cover every number of nodes")


def candidates(
    templates: Templates, intact: list[Pipeline], broken: list[Pipeline], count: int
) -> Iterator[tuple[int, int, list[Pipeline]]]:
    """Yield the choices of pipelines if `count` intact ones change, with sort keys.

    Args:
      templates: Sizes of pipelines.
      intact: Pipelines that lost no node.
      broken: The remaining nodes of the others.
      count: Number of intact pipelines that change.

    Yields:
      Minus the number of pipelines, the number of nodes that move, and the pipelines.
    """
    seen = set()
    for chosen in combinations(range(len(intact)), count):
        sizes = tuple(len(intact[number]) for number in chosen)
        if sizes in seen:  # as other pipelines of these sizes
            continue
        seen.add(sizes)
        kept = [each for number, each in enumerate(intact) if number not in chosen]
        changed = [*(intact[number] for number in chosen), *broken]
        fewest = templates.failures + 1 - len(kept)
        for pipelines in templates.counts(sum(map(len, changed)), fewest):
            made, moved = rearranged(templates, changed, pipelines)
            yield -len(kept) - pipelines, moved, [*kept, *made]


def rearranged(
    templates: Templates, changed: Sequence[Pipeline], count: int
) -> tuple[list[Pipeline], int]:
    """Return `count` pipelines of the nodes of others, and the number that moves.

    The largest pipelines keep their nodes; those of the others are distributed. Then
    nodes of the largest pipelines move to those that are too small.

    Args:
      templates: Sizes of pipelines.
      changed: The nodes of pipelines.
      count: Number of pipelines to make.
    """
    longest = sorted(changed, key=lambda nodes: (-len(nodes), nodes))
    made = [list(nodes) for nodes in longest[:count]]
    made += [[] for _ in range(count - len(made))]
    free = [node for nodes in longest[count:] for node in nodes]
    moved = len(free)
    for node in free:
        min(made, key=len).append(node)
    while made and len(small := min(made, key=len)) < templates.least:
        small.append(max(made, key=len).pop())
        moved += 1
    return [tuple(nodes) for nodes in made], moved


def moves(before: Sequence[Pipeline], after: Sequence[Pipeline]) -> int:
    """Return the number of nodes that are not from the main origin of their pipeline.

    The main origin is the former pipeline of most of its nodes.
    """
    origins = {node: number for number, nodes in enumerate(before) for node in nodes}
    return sum(
        len(nodes) - max(Counter(origins[node] for node in nodes).values())
        for nodes in after
    )


def changes(before: Sequence[Pipeline], after: Sequence[Pipeline]) -> int:
    """Return the number of pipelines that are new or changed."""
    return len(set(after) - set(before))


def speed(stages: int, microbatches: int) -> float:
    """Return microbatches per second, relative to one node without a bubble.

    A pipeline of n stages computes m microbatches in m + n - 1 slots of 1/n s.

    Args:
      stages: Number n of stages, one per node.
      microbatches: Number m of microbatches of an update.
    """
    return stages * microbatches / (microbatches + stages - 1)


def batch_shares(speeds: Sequence[float], batch: int) -> list[int]:
    """Return the examples of each pipeline, in proportion to its speed.

    Shares are rounded down; examples that remain go to the largest remainders.

    Args:
      speeds: Speed of each pipeline.
      batch: Number of examples of a minibatch.
    """
    exact = [batch * speed / sum(speeds) for speed in speeds]
    shares = [int(share) for share in exact]
    order = sorted(range(len(exact)), key=lambda n: shares[n] - exact[n])
    for number in order[: batch - sum(shares)]:
        shares[number] += 1
    return shares
