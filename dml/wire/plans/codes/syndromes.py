"""Location of wrong terms of a cyclic code by syndromes of random projections.

    terms of n workers ──random vectors f──► y = terms · f     n x m numbers
    checks · y = 0                           if all terms are right
    Π_T(node_w) · checks · y = 0             if T contains all wrong workers

Π_T is the polynomial whose roots are the nodes of the workers in T: it removes their
terms from the checks exactly, of any size and also if they are not finite, and leaves
copies - 1 - |T| checks on the others (Forney's syndromes). All sets of at most s
workers are tried, smallest first. The code has distance 2s + 1, so that two sets which
both fit have equal terms outside of them. A wrong term fits by chance if all m random
projections of its error are nearly 0.

A residual is compared with the norms of the terms outside of T. Errors below the
tolerance are not seen; they change the decoded sum by as little, times the loss of
digits of the code. C(n, s) sets, O(n m copies) operations each.
"""

from functools import lru_cache
from itertools import combinations
from math import comb

import numpy as np

from dml.types import BadInput
from dml.wire.plans.codes.coding import Code, nodes

TOLERANCE = 1e-6  # of a residual, relative to the terms; float32 rounds by 6e-8
MAX_SETS = 50_000  # 0.1 s
PROJECTIONS = 3


def check_sets(code: Code) -> None:
    """Raise BadInput if there are too many sets of wrong workers."""
    count = comb(code.workers, code.faulty)
    if not code.repeats and count > MAX_SETS:
        raise BadInput(
            f"expected at most {MAX_SETS} sets of {code.faulty} of the workers, got "
            f"{count} of {code.workers} workers; use fewer workers, a smaller number "
            "of wrong ones, or repetition"
        )


def locate(code: Code, projections: np.ndarray, norms: np.ndarray) -> np.ndarray | None:
    """Return the workers with wrong terms, or None if they are more than code.faulty.

    Args:
      code: A cyclic code.
      projections: n x m inner products of the terms with random vectors; those of terms
        that are not finite are ignored.
      norms: Norm of each worker's term; not finite if the term is not.
    """
    finite = np.isfinite(norms) & np.isfinite(projections).all(axis=1)
    known = tuple(np.flatnonzero(~finite).tolist())
    if len(known) > code.faulty:
        return None
    assert code.checks is not None
    projections = np.where(finite[:, None], projections, 0)
    norms = np.where(finite, norms, 0)
    for size in range(len(known), code.faulty + 1):
        sets, factors = erasures(code.workers, size, known)
        left = code.copies - 1 - size
        filtered = factors[:, None, :] * code.checks[:left]
        residuals = np.abs(filtered @ projections).max(axis=(1, 2))
        scales = np.linalg.norm(np.abs(filtered[:, 0]) * norms, axis=1)
        ratios = residuals / np.where(scales > 0, scales, 1)
        best = int(np.argmin(ratios))
        if ratios[best] <= TOLERANCE:
            return sets[best]
    return None


@lru_cache(maxsize=4)
def erasures(
    workers: int, size: int, known: tuple[int, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """Return sets of workers that contain the known ones, and Π_T(node) of each.

    Args:
      workers: Number of workers.
      size: Number of workers in a set T.
      known: Workers in all sets.
    """
    others = [worker for worker in range(workers) if worker not in known]
    chosen = combinations(others, size - len(known))
    sets = np.array([sorted((*known, *rest)) for rest in chosen], np.int64)
    points = nodes(workers)
    return sets, (points - points[sets][:, :, None]).prod(axis=1)
