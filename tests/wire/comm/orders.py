"""Serial implementations of every all-reduce, which add in the same order.

The argument has a row for the vector of each rank; the result is the vector that every
rank must have at the end, bit for bit. Written from the published algorithms and the
docstrings, not from the code: this module does not import `dml` and sends no messages.
"""

from collections.abc import Callable, Sequence

import numpy as np

Order = Callable[[np.ndarray], np.ndarray]


def in_rank_order(rows: np.ndarray) -> np.ndarray:
    """((x_0 + x_1) + x_2) + … + x_{p-1}: star, shared."""
    total = rows[0]
    for row in rows[1:]:
        total = total + row
    return total


def ring(rows: np.ndarray, owners: int = 0) -> np.ndarray:
    """Chunk c begins with its own rank: ((x_c + x_{c+1}) + …) + x_{c-1}.

    Inside a group rank c of the owners ends with chunk c, so that it begins one later.
    """
    parts = np.array_split(np.arange(rows.shape[1]), owners or len(rows))
    total = np.empty_like(rows[0])  # longer parts come first
    for c, part in enumerate(parts):
        first = c + (owners > 0)
        total[part] = in_rank_order(np.roll(rows[:, part], -first, axis=0))
    return total


def butterfly(rows: np.ndarray) -> np.ndarray:
    """Neighbours pair up, then pairs of pairs; before that the first ranks fold."""
    power = 1
    while 2 * power <= len(rows):
        power *= 2
    extra = len(rows) - power
    blocks = [rows[2 * i] + rows[2 * i + 1] for i in range(extra)]
    blocks += list(rows[2 * extra :])
    while len(blocks) > 1:
        blocks = [a + b for a, b in zip(blocks[::2], blocks[1::2], strict=True)]
    return blocks[0]


def tree(rows: np.ndarray) -> np.ndarray:
    """Rank r adds the subtrees of r+1, r+2, r+4, … in that order."""

    def subtree(rank: int, width: int) -> np.ndarray:
        total, step = rows[rank], 1
        while step < width and rank + step < len(rows):
            total = total + subtree(rank + step, step)
            step *= 2
        return total

    return subtree(0, len(rows))


def hierarchical(
    rows: np.ndarray, groups: Sequence[Sequence[int]], outside: Order, hosts: bool
) -> np.ndarray:
    """Each chunk is added inside every group, then by `outside` across groups.

    Inside a host in rank order, else round a ring. There are as many chunks as the
    smallest group has ranks.
    """
    owners = min(map(len, groups))
    inside = [
        in_rank_order(rows[list(group)]) if hosts else ring(rows[list(group)], owners)
        for group in groups
    ]
    total = np.empty_like(rows[0])
    for part in np.array_split(np.arange(rows.shape[1]), owners):
        total[part] = outside(np.stack(inside)[:, part])
    return total


def by_chunks(rows: np.ndarray, total: Callable[[np.ndarray, int], np.ndarray]):
    """Chunk c is total(the chunk's rows, c)."""
    result = np.empty_like(rows[0])
    for c, part in enumerate(np.array_split(np.arange(rows.shape[1]), len(rows))):
        result[part] = total(rows[:, part], c)
    return result


def circulant(rows: np.ndarray) -> np.ndarray:
    """Skips ⌈p/2⌉, …, 1: rank c - j + s adds the sum of rank c - j, for all j ≥ s."""

    def total(terms: np.ndarray, c: int) -> np.ndarray:
        sums, count = [terms[c - j] for j in range(len(terms))], len(terms)
        while count > 1:
            skip = -(-count // 2)
            for j in range(skip, count):
                sums[j - skip] = sums[j - skip] + sums[j]
            count = skip
        return sums[0]

    return by_chunks(rows, total)


def trivance(rows: np.ndarray) -> np.ndarray:
    """Windows around c shrink to a third: sums before c are added before those after.

    The last step may be smaller; if it is one-sided, its ranks are after c.
    """

    def total(terms: np.ndarray, c: int) -> np.ndarray:
        size, windows = len(terms), [1]
        while windows[-1] < size:
            windows.append(min(3 * windows[-1], size))
        sums = {
            0: terms[c]
        }  # by distance from c; ranks after c have chunk c on their left
        for window, wider in zip(windows, windows[1:], strict=False):
            half, missing = window // 2, wider - window
            after = missing if missing <= window else -(-missing // 2)
            for j in range(1, after + 1):
                sums[half + j] = terms[(c + half + j) % size]
            for j in range(1, missing - after + 1):
                sums[-half - j] = terms[(c - half - j) % size]
        for window, wider in reversed(list(zip(windows, windows[1:], strict=False))):
            half, missing = window // 2, wider - window
            after = missing if missing <= window else -(-missing // 2)
            for j in range(missing - after):  # these ranks are before c
                at = -half - 1 - j
                sums[at + window] = sums[at + window] + sums[at]
            for j in range(after):
                at = half + 1 + j
                sums[at - window] = sums[at - window] + sums[at]
        return sums[0]

    return by_chunks(rows, total)


def power_of(rows: np.ndarray) -> tuple[int, list[np.ndarray]]:
    """Return the largest power of two, and the rows folded in pairs to so many."""
    power = 1 << (len(rows).bit_length() - 1)
    return power, folded(rows, power)


def folded(rows: np.ndarray, places: int) -> list[np.ndarray]:
    """The first ranks fold in pairs."""
    extra = len(rows) - places
    sums = [rows[2 * i] + rows[2 * i + 1] for i in range(extra)]
    return sums + list(rows[2 * extra :])


def swing_partner(rank: int, s: int, size: int) -> int:
    distance = sum((-2) ** i for i in range(s + 1))
    return (rank - distance if rank % 2 else rank + distance) % size


def connected(rank: int, first: int, size: int) -> set[int]:
    """Return the ranks that steps first, first + 1, … connect with a rank."""
    found, new = set(), {rank}
    while new:
        found |= new
        steps = range(first, size.bit_length() - 1)
        new = {swing_partner(one, s, size) for one in new for s in steps} - found
    return found


def swing(rows: np.ndarray) -> np.ndarray:
    """Halves of the ranks have halves of the elements, and add their partners' to them.

    The half with the smallest rank has the lower elements; before that the first ranks
    fold.
    """
    power, sums = power_of(rows)

    def halves(ranks: set[int], s: int, parts: list[int]) -> None:
        """Give the ranks their parts, which are as many."""
        if len(ranks) == 1:
            owner[parts[0]] = min(ranks)
            return
        low, middle = connected(min(ranks), s + 1, power), len(parts) // 2
        halves(low, s + 1, parts[:middle])
        halves(ranks - low, s + 1, parts[middle:])

    def total(terms: np.ndarray, rank: int, s: int) -> np.ndarray:
        if s < 0:
            return terms[rank]
        other = swing_partner(rank, s, power)
        return total(terms, rank, s - 1) + total(terms, other, s - 1)

    owner: dict[int, int] = {}
    halves(set(range(power)), 0, list(range(power)))
    last = power.bit_length() - 2
    return by_chunks(np.stack(sums), lambda terms, c: total(terms, owner[c], last))


def bine(rows: np.ndarray) -> np.ndarray:
    """The farthest partners of Swing first: sets of ranks with equal sums join."""
    power, sums = power_of(rows)

    def total(rank: int, s: int) -> np.ndarray:
        if s == power.bit_length() - 1:
            return sums[rank]
        return total(rank, s + 1) + total(swing_partner(rank, s, power), s + 1)

    return total(0, 0)


def multiplying(rows: np.ndarray) -> np.ndarray:
    """Groups of 4, of 3 and of 2 add in rank order; the first ranks fold."""
    places = len(rows)
    while not three_smooth(places):
        places -= 1
    sums = folded(rows, places)
    for members in (4, 3, 2):
        while len(sums) % members == 0 and len(sums) >= members:
            sums = [
                in_rank_order(np.stack(sums[first : first + members]))
                for first in range(0, len(sums), members)
            ]
    return sums[0]


def three_smooth(number: int) -> bool:
    for factor in (2, 3):
        while number % factor == 0:
            number //= factor
    return number == 1


def torus(rows: np.ndarray) -> np.ndarray:
    """Chunks by the ring of each row, chunks of these by the ring of a column."""
    size = len(rows)
    height = max(r for r in range(1, size + 1) if r * r <= size and size % r == 0)
    grid = rows.reshape(height, size // height, -1)
    total = np.empty_like(rows[0])
    along_rows = np.stack([ring(row) for row in grid])
    for part in np.array_split(np.arange(rows.shape[1]), size // height):
        total[part] = ring(along_rows[:, part])
    return total


def segmented_ring(rows: np.ndarray) -> np.ndarray:
    """A ring for each piece; a piece has 65,536 bytes of each rank's."""
    width = len(rows) * 65_536 // rows.itemsize
    starts = range(0, rows.shape[1], width)
    pieces = [ring(rows[:, start : start + width]) for start in starts]
    return np.concatenate([rows[0, :0], *pieces])


ORDERS: dict[str, Order] = {
    "star": in_rank_order,
    "tree": tree,
    "butterfly": butterfly,
    "halving_doubling": butterfly,  # the same pairs, each word at one of them
    "ring": ring,
    "shared": in_rank_order,
}

# of further algorithms, each of which has a small suite of its own
FURTHER: dict[str, Order] = {
    "swing": swing,
    "trivance": trivance,
    "circulant": circulant,
    "bine": bine,
    "multiplying": multiplying,
    "torus": torus,
    "segmented_ring": segmented_ring,
    "one_shot": in_rank_order,
    "two_shot": in_rank_order,
}
BASIC = [*ORDERS, "hierarchical", "native", "auto"]
