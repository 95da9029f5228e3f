"""Read and write two-label graphs as DIMACS max-flow files.

Lines are `p max nodes arcs`, `n node s|t` and `a from to capacity`. The value of a cut
plus the constant of the graph is the capacity of the arcs from source to sink side.
"""

import re
from collections import defaultdict
from pathlib import Path

import numpy as np

from dml.data.sparse.graphs import Graph, checked
from dml.types import BadInput

SOURCE, SINK = "s", "t"  # labels 0 and 1
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
FORMS = {"p": "p max nodes arcs", "n": "n node s|t", "a": "a from to capacity"}


def dimacs(path: str | Path) -> Graph:
    """Read a graph; nodes other than the two terminals are numbered in file order."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(
            f"expected a DIMACS file at {path}, got {error}; pass a readable path"
        ) from None
    size: list[int] = []
    ends: dict[str, int] = {}
    arcs: dict[tuple[int, int], float] = defaultdict(float)
    for number, line in enumerate(lines, 1):
        try:
            _parse(line.split(), size, ends, arcs)
        except ValueError as error:
            raise BadInput(
                f"{path}, line {number}: {error}, got {line.strip()[:60]!r}; "
                "correct the line"
            ) from None
    if set(ends) != {SOURCE, SINK} or ends[SOURCE] == ends[SINK]:
        raise BadInput(
            f"{path}: expected lines `n node s` and `n node t` of two nodes, got "
            f"{ends or 'none'}; name the terminals"
        )
    return checked(_graph(size[0], ends[SOURCE], ends[SINK], arcs))


def write(path: str | Path, graph: Graph) -> None:
    """Write a two-label graph without its constant: source 1, sink 2, nodes from 3."""
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
    ends: dict[str, int],
    arcs: dict[tuple[int, int], float],
) -> None:
    """Add the data of a line to size, ends or arcs.

    Args:
      words: Words of the line.
      size: Number of nodes, after line `p`; empty before.
      ends: Node of SOURCE and of SINK.
      arcs: (from, to) -> capacity.
    """
    kind = words[0] if words else "c"
    if kind == "c":
        return
    if kind not in FORMS:
        raise ValueError(f"expected a line of {', '.join(FORMS)} or c")
    if len(words) != len(FORMS[kind].split()):
        raise ValueError(f"expected `{FORMS[kind]}`")
    if (kind == "p") == bool(size):
        raise ValueError("expected one line `p` before all others")
    if kind == "p":
        if words[1] != "max" or not _natural(words[2]) >= 2:
            raise ValueError("expected `p max` with 2 nodes or more")
        size.append(_natural(words[2]))
        return
    nodes = [_natural(word) for word in words[1 : 2 if kind == "n" else 3]]
    if not all(1 <= node <= size[0] for node in nodes):
        raise ValueError(f"expected nodes from 1 to {size[0]}")
    if kind == "n":
        if words[2] not in (SOURCE, SINK) or words[2] in ends:
            raise ValueError("expected one `s` and one `t`")
        ends[words[2]] = nodes[0]
        return
    capacity = float(words[3]) if NUMBER.fullmatch(words[3]) else -1.0
    if not 0 <= capacity < float("inf"):
        raise ValueError("expected a capacity of 0 or more")
    arcs[nodes[0], nodes[1]] += capacity


def _natural(word: str) -> int:
    return int(word) if word.isdecimal() else -1


def _graph(
    size: int, source: int, sink: int, arcs: dict[tuple[int, int], float]
) -> Graph:
    """Convert directed arcs to undirected edges and terminals.

    Arcs u → v of capacity a and v → u of capacity b cost a if only u is on the source
    side, b if only v is. With s = 1 on the source side, else 0, the cost is ½ (a + b)
    if s_u ≠ s_v, plus ½ (a - b) (s_u - s_v): an edge of ½ (a + b), and terminals.
    """
    inner = np.setdiff1d(np.arange(1, size + 1), [source, sink])
    place = {int(node): n for n, node in enumerate(inner)}
    pairs: dict[tuple[int, int], float] = defaultdict(float)
    sources, sinks = np.zeros(len(inner)), np.zeros(len(inner))  # cost per node
    linear, constant = np.zeros(len(inner)), 0.0  # coefficient of s, per node
    for (u, v), capacity in arcs.items():
        if u in (v, sink) or v == source:
            continue  # an arc in no cut
        if u == source and v == sink:
            constant += capacity  # an arc in every cut
        elif u == source:
            sources[place[v]] += capacity
        elif v == sink:
            sinks[place[u]] += capacity
        else:
            first, second = place[u], place[v]
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
    return Graph(
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
