"""Gradient boosting: trees of integer histograms, one model for every number of ranks.

    rows of rank 0 ─► sums by column and bin ─┐ ┌─► columns of rank 0 ─► best split ─┐
    rows of rank 1 ─► sums by column and bin ─┴─┴─► columns of rank 1 ─► best split ─┴─►
                                      reduce-scatter                        all-gather

    g = f - y, a multiple of 2^-e     gain = G_L²/(H_L+λ) + G_R²/(H_R+λ) - G²/(H+λ)
    H: number of rows                 value of a leaf = -rate · G/(H+λ)

Integers have the same sum in any order, so that all ranks, and any number of them, find
the same splits. The leaf with the largest gain is split next; of its two children, only
the one with fewer rows is summed: the other one is the difference to their parent.
G << 32 + H is one word. Words over all p ranks, for a tree of L leaves on S bins of all
columns, if all children can be split:

    (p-1) · ((L-1) S + 2 (1 + 3 + (L-1) + 2L)) + p(p-1) · 7 (2L-3)

    mpirun -n 4 python experiments/single/boosting.py
"""

import hashlib

import numpy as np
from mpi4py import MPI

LEAVES, RATE, L2, MIN_ROWS, BINS = 8, 0.3, 1.0, 5, 16
FINE, SHIFT = 30, 13  # bits of g in leaves, and how many fewer in histograms


def reduce_all(comm, values, op=np.add):
    """Return the values reduced over all ranks: rank 0 receives, then sends."""
    rank, size = (comm.Get_rank(), comm.Get_size()) if comm else (0, 1)
    if rank:
        comm.Send(values, 0)
        comm.Recv(values, 0)
        return values
    for source in range(1, size):
        comm.Recv(term := np.empty_like(values), source)
        op(values, term, out=values)
    for dest in range(1, size):
        comm.Send(values, dest)
    return values


def exchange(comm, parts):
    """Send parts[r] to rank r; return what all ranks have sent to this one."""
    rank, size = (comm.Get_rank(), comm.Get_size()) if comm else (0, 1)
    received = [parts[rank].copy() for _ in range(size)]
    for k in range(1, size):
        dest, source = (rank + k) % size, (rank - k) % size
        comm.Sendrecv(parts[dest], dest, 0, received[source], source, 0)
    return received


def sums(comm, bins, packed, rows):
    """Return G and H of the rows of all ranks, for this rank's columns and each bin."""
    size, columns = comm.Get_size() if comm else 1, bins.shape[1]
    table = np.zeros((columns, BINS), np.int64)
    np.add.at(table, (np.arange(columns), bins[rows]), packed[rows, None])
    parts = np.split(table, [columns * r // size for r in range(1, size)])
    total = sum(exchange(comm, parts))
    return np.array([total >> 32, total & 0xFFFFFFFF])


def set_splits(comm, leaves, unit, columns):
    """Set the best split of each leaf: gain, column, bin, larger side, G, H, rows."""
    rank, size = (comm.Get_rank(), comm.Get_size()) if comm else (0, 1)
    own = np.full((len(leaves), 7), -np.inf)
    for leaf, record in zip(leaves, own, strict=True):
        (G, H), (G_left, H_left) = leaf["total"], np.cumsum(leaf["sums"], axis=2)
        gain = (G_left * unit) ** 2 / (H_left + L2)
        gain = gain + ((G - G_left) * unit) ** 2 / (H - H_left + L2)
        gain[np.minimum(H_left, H - H_left) < MIN_ROWS] = -np.inf
        if len(gain):
            c = int((gain.max(axis=1) - (G * unit) ** 2 / (H + L2)).argmax())
            b, first = int(gain[c].argmax()), columns * rank // size
            best, h = gain[c, b] - (G * unit) ** 2 / (H + L2), H_left[c, b]
            record[:] = best, first + c, b, 2 * h >= H, G_left[c, b], h, h
    every = np.array(exchange(comm, [own] * size))
    for i, leaf in enumerate(leaves):
        leaf["split"] = every[every[:, i, 0].argmax(), i]  # ties: the lower column


def grow(comm, bins, g):
    """Return the splits (leaf, column, bin), the leaves' values, and rows by leaf."""
    largest = reduce_all(comm, np.array([abs(g).max(initial=0)]), np.maximum)[0]
    fraction, power = np.frexp(largest)
    e = FINE - int(power) + int(fraction == 0.5)  # so that |g| ≤ 2^(FINE-e)
    fine = np.floor(g * 2.0**e + 0.5).astype(np.int64)
    coarse, unit = (fine + (1 << (SHIFT - 1))) >> SHIFT, 2.0 ** (SHIFT - e)
    packed = (coarse << 32) + 1
    total = reduce_all(comm, np.array([coarse.sum(), len(g), len(g)]))[:2]
    leaves, splits = [{"rows": np.arange(len(g)), "total": total}], []
    leaves[0]["sums"] = sums(comm, bins, packed, leaves[0]["rows"])
    set_splits(comm, leaves, unit, bins.shape[1])
    while len(leaves) < LEAVES:
        gains = [leaf["split"][0] if "split" in leaf else -np.inf for leaf in leaves]
        number = int(np.argmax(gains))  # ties: the lower leaf
        if gains[number] <= 0:
            break
        parent = leaves[number]
        column, b, _, G, H, _ = map(int, parent["split"][1:])
        goes = bins[parent["rows"], column] <= b
        assert reduce_all(comm, np.array([goes.sum()])) == H
        pair = [{"rows": parent["rows"][side]} for side in (goes, ~goes)]
        pair[0]["total"], pair[1]["total"] = np.array([G, H]), parent["total"] - [G, H]
        splits.append((number, column, b))
        leaves[number] = pair[0]
        leaves.append(pair[1])
        searched = [leaf for leaf in pair if leaf["total"][1] >= 2 * MIN_ROWS]
        if searched and len(leaves) < LEAVES:
            fewer, more = sorted(pair, key=lambda leaf: leaf["total"][1])
            fewer["sums"] = sums(comm, bins, packed, fewer["rows"])
            more["sums"] = parent["sums"] - fewer["sums"]
            set_splits(comm, searched, unit, bins.shape[1])
    own = [[fine[leaf["rows"]].sum(), len(leaf["rows"])] for leaf in leaves]
    G, H = reduce_all(comm, np.array(own, np.int64)).T
    return splits, RATE * (-(G * 2.0**-e) / (H + L2)), [leaf["rows"] for leaf in leaves]


def boost(comm, bins, y, start, rounds):
    """Return the trees, and the scores of this rank's rows."""
    f, trees = np.full(len(y), start), []
    for _ in range(rounds):
        splits, values, rows = grow(comm, bins, f - y)
        for value, own in zip(values, rows, strict=True):
            f[own] += value
        trees.append((splits, values.tolist()))
    return trees, f


def main(comm):
    rank, size = comm.Get_rank(), comm.Get_size()
    columns, rounds, rng = 8, 10, np.random.default_rng(0)
    bins = rng.integers(0, BINS, (600, columns))
    y = np.sin(bins[:, 0]) + bins[:, 1] * bins[:, 2] / 99 + rng.normal(0, 0.1, 600)
    own, start = slice(600 * rank // size, 600 * (rank + 1) // size), y.mean()
    trees, _ = boost(comm, bins[own], y[own], start, rounds)
    alone, f = boost(None, bins, y, start, rounds)
    if rank == 0:
        S, L = columns * BINS, LEAVES
        words = (L - 1) * S + 2 * (3 + 3 * L) + size * 7 * (2 * L - 3)
        print(f"{rounds} trees: RMSE {np.std(y):.3f} to {np.std(f - y):.3f}")
        print("sha256:", hashlib.sha256(repr(trees).encode()).hexdigest()[:16])
        print(f"words of all ranks in a tree: {(size - 1) * words}")
        print(f"equal bits to one process: {trees == alone}")


if __name__ == "__main__":
    main(MPI.COMM_WORLD)
