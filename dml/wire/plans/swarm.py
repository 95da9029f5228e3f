"""Schedules of a broadcast in pieces in which every peer uploads.

A source has M pieces, N peers have no pieces, and each of these N + 1 participants
uploads at most one piece per round. Every schedule takes at least M + ⌊lg N⌋ rounds
(Mundinger, Weber, Weiss 2008): the source uploads M pieces in M rounds, and the last
piece then doubles in ⌊lg N⌋ rounds.

For N = 2^k, peers are the corners of a cube. In round t the source uploads piece t to
the corner 2^(t mod k), and all corners upload along the axis t mod k:

    round   0        1        2        3              k = 2, corners 00, 01, 10, 11
    source  0 → 01   1 → 10   2 → 01   3 → 10
    piece 0          01 → 11  01 → 00
                              11 → 10
    piece 1                   10 → 11  10 → 00 …

The corners that have piece j double along the axes j + 1, …, j + k. Of the pieces
t - k, …, t - 1, which are uploaded in round t, each corner has one, except corner 0:
if i is the smallest i ≥ 0 for which bit (t + i) mod k of the corner is set, the corner
has piece t - k + i. Corner 0 uploads no piece. A peer receives at most one piece in a
round.

Pure arithmetic, without communication.
"""

from typing import NamedTuple

import numpy as np


class Uploads(NamedTuple):
    """Uploads of a round: peer source[i] sends piece[i] to peer dest[i].

    Peers are 1, …, N; the source is 0.
    """

    source: np.ndarray
    dest: np.ndarray
    piece: np.ndarray


def least_rounds(pieces: int, peers: int) -> int:
    """Return the lower bound M + ⌊lg N⌋ of every schedule."""
    return pieces + peers.bit_length() - 1


def cube(pieces: int, peers: int) -> list[Uploads]:
    """Return the schedule for N = 2^k peers, in M + k rounds.

    Args:
      pieces: Number of pieces, M.
      peers: Number of peers, a power of 2.
    """
    k = peers.bit_length() - 1
    corner = np.arange(peers)
    rounds = []
    for t in range(pieces + k):
        axis = t % k if k else 0
        # bits of each corner, rotated so that the bit of the axis is the lowest
        turned = ((corner >> axis) | (corner << (k - axis))) & (peers - 1)
        first = np.log2(np.maximum(1, turned & -turned)).astype(np.int64)
        piece = t - k + first
        sends = (turned > 0) & (piece >= 0) & (piece < pieces)
        source, dest = corner[sends] + 1, (corner[sends] ^ (1 << axis)) + 1
        piece = piece[sends]
        if t < pieces:
            entry = (1 << axis) + 1 if k else 1
            source, dest = np.append(0, source), np.append(entry, dest)
            piece = np.append(t, piece)
        rounds.append(Uploads(source, dest, piece))
    return rounds


def rarest_first(pieces: int, peers: int, seed: int) -> list[Uploads]:
    """Return a random swarm: each uploader sends the rarest useful piece.

    In each round, uploaders choose in random order. An uploader sends to a random peer
    that receives no piece in this round and lacks a piece of the uploader. Of the
    lacking pieces it sends the one with the fewest copies, including this round.

    Args:
      pieces: Number of pieces.
      peers: Number of peers.
      seed: Random seed.
    """
    generator = np.random.default_rng(seed)
    has = np.zeros((peers + 1, pieces), bool)
    has[0] = True
    copies = has.sum(0)
    rounds = []
    while not has.all():
        before, idle = has.copy(), np.ones(peers + 1, bool)
        idle[0] = False
        uploads = []
        for source in generator.permutation(np.flatnonzero(before.any(1))):
            useful = (before[source] & ~has).any(1) & idle
            if not useful.any():
                continue
            dest = generator.choice(np.flatnonzero(useful))
            candidates = np.flatnonzero(before[source] & ~has[dest])
            rarity = copies[candidates] + generator.random(len(candidates))
            piece = candidates[np.argmin(rarity)]
            has[dest, piece], idle[dest] = True, False
            copies[piece] += 1
            uploads.append((source, dest, piece))
        rounds.append(Uploads(*np.array(uploads, np.int64).T))
    return rounds


def corner(pieces: int, peers: int) -> list[Uploads]:
    """Return the schedule for N = 2^k - 1 peers, in M + k rounds, 1 above the bound.

    The source also takes the place of corner 0 of the cube, which uploads no piece.

    Args:
      pieces: Number of pieces, M.
      peers: Number of peers, one less than a power of 2.
    """
    rounds = []
    for source, dest, piece in cube(pieces, peers + 1):
        others = dest != 1  # the source has all pieces
        source, dest = np.maximum(source - 1, 0), dest - 1
        rounds.append(Uploads(source[others], dest[others], piece[others]))
    return rounds


def schedule(pieces: int, peers: int, seed: int = 0) -> list[Uploads]:
    """Return the schedule of a cube if N or N + 1 is a power of 2, else a random swarm.

    Args:
      pieces: Number of pieces.
      peers: Number of peers.
      seed: Random seed.
    """
    if peers & (peers - 1) == 0:
        return cube(pieces, peers)
    if peers & (peers + 1) == 0:
        return corner(pieces, peers)
    return rarest_first(pieces, peers, seed)
