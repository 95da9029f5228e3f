"""Read and write two-label graphs as DIMACS max-flow files.

Lines are `p max nodes arcs`, `n node s|t` and `a from to capacity`. The capacity of a
cut in the file is that of the arcs from the source side to the sink side. It equals the
cost of the labelling of the graph, which includes the graph's constant.
"""

import re
from collections import defaultdict
from pathlib import Path

import numpy as np

from dml.data.sparse.graphs import WeightedGraph, validate
from dml.types import BadInput

SOURCE, SINK = "s", "t"  # labels 0 and 1
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
FORMS = {"p": "p max nodes arcs", "n": "n node s|t", "a": "a from to capacity"}


def dimacs(path: str | Path) -> WeightedGraph:
    """Read a graph; its nodes are the nodes of the file except the two terminals."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(
            f"expected a DIMACS file at {path}, got {error}; pass a readable path"
        ) from None
    size: list[int] = []
    terminals: dict[str, int] = {}
    arcs: dict[tuple[int, int], float] = defaultdict(float)
    for number, line in enumerate(lines, 1):
        try:
            _parse(line.split(), size, terminals, arcs)
        except ValueError as error:
            raise BadInput(
                f"{path}, line {number}: {error}, got {line.strip()[:60]!r}; "
                "correct the line"
            ) from None
    if set(terminals) != {SOURCE, SINK} or len(set(terminals.values())) < 2:
        raise BadInput(
            f"{path}: expected lines `n node s` and `n node t` of two nodes, got "
            f"{terminals or 'none'}; add or correct these lines"
        )
    return validate(_graph(size[0], terminals[SOURCE], terminals[SINK], arcs))


def write(path: str | Path, graph: WeightedGraph) -> None:
    """Write a two-label graph without its constant.

    The source has number 1, the sink 2, and node n of the graph n + 3.
    """
    arcs = []
    for (u, v), weight in zip(graph.pairs + 3, graph.pair_weights, strict=True):
        arcs += [f"a {u} {v} {weight:.9g}", f"a {v} {u} {weight:.9g}"]
    for (node, label), weight in zip(
        graph.terminals, graph.terminal_weights, strict=True
    ):
        arc = f"{node + 3} 2" if label else f"1 {node + 3}"
        arcs.append(f"a {arc} {weight:.9g}")
    head = [f"p max {graph.nodes + 2} {len(arcs)}", "n 1 s", "n 2 t"]
    Path(path).write_text("\n".join([*head, *arcs, ""]), encoding="utf-8")


def _parse(
    words: list[str],
    size: list[int],
    terminals: dict[str, int],
    arcs: dict[tuple[int, int], float],
) -> None:
    """Add the data of a line to size, terminals or arcs.

    Args:
      words: Words of the line.
      size: Empty before line `p`, then the number of nodes.
      terminals: SOURCE or SINK -> its node.
      arcs: (from, to) -> capacity.
    """
    letter = words[0] if words else "c"  # a comment
    if letter == "c":
        return
    if letter not in FORMS:
        raise ValueError(f"expected a line of {', '.join(FORMS)} or c")
    if len(words) != len(FORMS[letter].split()):
        raise ValueError(f"expected `{FORMS[letter]}`")
    if (letter == "p") == bool(size):
        raise ValueError("expected one line `p` before all others")
    if letter == "p":
        if words[1] != "max" or not _natural(words[2]) >= 2:
            raise ValueError("expected `p max` with 2 nodes or more")
        size.append(_natural(words[2]))
        return
    nodes = [_natural(word) for word in words[1 : 2 if letter == "n" else 3]]
    if not all(1 <= node <= size[0] for node in nodes):
        raise ValueError(f"expected nodes from 1 to {size[0]}")
    if letter == "n":
        if words[2] not in (SOURCE, SINK) or words[2] in terminals:
            raise ValueError("expected one `s` and one `t`")
        terminals[words[2]] = nodes[0]
        return
    capacity = float(words[3]) if NUMBER.fullmatch(words[3]) else -1.0
    if not 0 <= capacity < float("inf"):
        raise ValueError("expected a capacity of 0 or more")
    arcs[nodes[0], nodes[1]] += capacity


def _natural(word: str) -> int:
    """Return a natural number, or -1 for any other word."""
    return int(word) if word.isdecimal() else -1


def _graph(
    size: int, source: int, sink: int, arcs: dict[tuple[int, int], float]
) -> WeightedGraph:
    """Convert directed arcs to undirected edges and terminals.

    Let s be 1 for nodes on the source side and 0 for others. Arcs u → v of capacity a
    and v → u of capacity b cost a if s_u > s_v, and b if s_u < s_v. This equals
    ½ (a + b) if s_u ≠ s_v, plus ½ (a - b) (s_u - s_v): an edge of weight ½ (a + b), and
    terms linear in s, which become terminals.
    """
    inner = np.setdiff1d(np.arange(1, size + 1), [source, sink])
    index = {int(node): n for n, node in enumerate(inner)}
    pairs: dict[tuple[int, int], float] = defaultdict(float)
    # per node: weights of its arcs from the source and to the sink; coefficient of s
    sources, sinks, linear = np.zeros((3, len(inner)))
    constant = 0.0
    for (u, v), capacity in arcs.items():
        if u in (v, sink) or v == source:
            continue  # the arc is in no cut
        if u == source and v == sink:
            constant += capacity  # the arc is in every cut
        elif u == source:
            sources[index[v]] += capacity
        elif v == sink:
            sinks[index[u]] += capacity
        else:
            first, second = index[u], index[v]
            pairs[min(first, second), max(first, second)] += 0.5 * capacity
            linear[first] += 0.5 * capacity
            linear[second] -= 0.5 * capacity
    sinks += np.maximum(linear, 0)
    # linear · s = |linear| (1 - s) - |linear| where linear < 0
    sources += np.maximum(-linear, 0)
    constant -= float(np.maximum(-linear, 0).sum())
    edges = {pair: weight for pair, weight in sorted(pairs.items()) if weight > 0}
    terminals = np.concatenate(
        [_terminals(sources, 0), _terminals(sinks, 1)], dtype=np.int32
    )
    weights = np.concatenate([sources[sources > 0], sinks[sinks > 0]])
    order = np.lexsort(terminals.T[::-1])
    return WeightedGraph(
        nodes=len(inner),
        labels=2,
        pairs=np.array(list(edges), np.int32).reshape(-1, 2),
        pair_weights=np.array(list(edges.values()), np.float32),
        terminals=terminals[order],
        terminal_weights=weights[order].astype(np.float32),
        constant=constant,
    )


def _terminals(weights: np.ndarray, label: int) -> np.ndarray:
    """Return (node, label) of each node with a nonzero weight."""
    nodes = np.flatnonzero(weights)
    return np.stack([nodes, np.full(len(nodes), label)], axis=1)
