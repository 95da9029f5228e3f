"""Mixing of vectors before a rule: nearest neighbours, buckets, clipped norms.

    nnm          each vector becomes the mean of its n-f nearest, itself included
    bucketing    a random permutation, and the means of pairs of neighbours in it
    clipping     the ⌊2(f/n)(n-f)⌋ longest vectors get the norm of the next one

They reduce the differences between vectors of honest workers with different data, on
which the errors of rules depend.
"""

import numpy as np

from dml.wire.reducers.robust.centres import shrinking
from dml.wire.reducers.robust.points import Points, lengths, mix, squared_distances
from dml.wire.reducers.robust.rule import Mixing

BUCKET = 2  # vectors of a bucket


def mix_neighbours(points: Points) -> Points:
    """Return the means of the n-f nearest vectors of each (Allouah 2023)."""
    squares_NxN = squared_distances(points)
    count = points.vectors - points.faulty
    nearest = np.argsort(squares_NxN, axis=1, kind="stable")[:, :count]
    weights_NxN = np.zeros_like(squares_NxN)
    np.put_along_axis(weights_NxN, nearest, 1 / count, axis=1)
    return mix(points, weights_NxN)


def bucket_count(count: int) -> int:
    return -(-count // BUCKET)


def mix_buckets(points: Points) -> Points:
    """Return the means of buckets of a random permutation (Karimireddy 2022).

    At most f of them have an arbitrary vector.
    """
    count = points.vectors
    order = np.random.default_rng([points.step, count]).permutation(count)
    weights_KxN = np.zeros((bucket_count(count), count))
    for number, weights_N in enumerate(weights_KxN):
        members = order[number * BUCKET : (number + 1) * BUCKET]
        weights_N[members] = 1 / len(members)
    return mix(points, weights_KxN)


def clip_norms(points: Points) -> Points:
    """Return the vectors with clipped norms (ARC, Allouah 2025)."""
    count, faulty = points.vectors, points.faulty
    clipped = 2 * faulty * (count - faulty) // count
    if not clipped:
        return points
    norms = lengths(points)
    limit = np.sort(norms)[count - clipped - 1]
    return mix(points, np.diag(shrinking(norms, limit)))


nnm = Mixing("nnm", mix_neighbours)
bucketing = Mixing("bucketing", mix_buckets, bucket_count, stateless=False)
clipping = Mixing("clipping", clip_norms)

MIXING = {mixing.name: mixing for mixing in (nnm, bucketing, clipping)}
