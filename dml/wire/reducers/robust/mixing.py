"""Mixing of vectors before a rule: nearest neighbours, buckets, clipped norms.

    nnm          each vector becomes the mean of its n-f nearest, itself included
    bucketing    a random permutation, and the means of pairs of neighbours in it
    clipping     the ⌊2(f/n)(n-f)⌋ longest vectors get the norm of the next one

They make the vectors of honest workers with different data more alike, which the
guarantees of rules need.
"""

import numpy as np

from dml.wire.reducers.robust.rule import EXTRA, Mixing, Points, Weights

BUCKET = 2  # vectors of a bucket


def neighbour_weights(points: Points, faulty: int) -> Weights:
    """Return the means of the n-f nearest vectors of each (Allouah 2023)."""
    count = points.vectors
    near = points.between.copy()
    np.fill_diagonal(near, -1)  # itself first, also among copies
    order = np.argsort(near, axis=1, kind="stable")[:, : count - faulty]
    weights = np.zeros((count, count + EXTRA))
    np.put_along_axis(weights, order, 1 / (count - faulty), axis=1)
    return weights


def bucket_count(count: int) -> int:
    return -(-count // BUCKET)


def bucket_weights(points: Points, faulty: int) -> Weights:
    """Return the means of buckets of a random permutation (Karimireddy 2022)."""
    count = points.vectors
    order = np.random.default_rng([points.step, count]).permutation(count)
    weights = np.zeros((bucket_count(count), count + EXTRA))
    for number, bucket in enumerate(weights):
        members = order[number * BUCKET : (number + 1) * BUCKET]
        bucket[members] = 1 / len(members)
    return weights


def norm_weights(points: Points, faulty: int) -> Weights:
    """Return the vectors with clipped norms (ARC, Allouah 2025)."""
    count, norms = points.vectors, np.sqrt(points.norms)
    clipped = int(2 * faulty / count * (count - faulty))
    weights = np.eye(count, count + EXTRA)
    if clipped:
        limit = np.sort(norms)[count - clipped - 1]
        factors = np.where(norms > limit, limit / np.where(norms > 0, norms, 1), 1)
        weights *= factors[:, None]
        weights[:, -2] = 1 - factors
    return weights


nnm = Mixing("nnm", neighbour_weights)
bucketing = Mixing("bucketing", bucket_weights, bucket_count, stateless=False)
clipping = Mixing("clipping", norm_weights)

MIXING = {mixing.name: mixing for mixing in (nnm, bucketing, clipping)}
