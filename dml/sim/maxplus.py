"""Compute start times of all steps of all workers with max-plus recurrences.

From X_TxP, the seconds that worker p computes in step t, to S_TxP, the start times. A
step ends at S + X. Messages take no time: only waiting is modelled.
"""

import numpy as np


def ssp(seconds_TxP: np.ndarray, staleness: float = 0) -> np.ndarray:
    """Return start times of stale synchronous parallel steps (Ho 2013).

    A step starts when no worker is more than `staleness` steps behind:
    S_i(k) = max(F_i(k-1), max_j F_j(k-s-1)), F = S + X. s = 0 is synchronous, s = ∞
    asynchronous.
    """
    starts_TxP = np.zeros_like(seconds_TxP)
    slowest_T = np.zeros(len(seconds_TxP))  # when the last worker ends each step
    finish_P = np.zeros(seconds_TxP.shape[1])
    for k, seconds_P in enumerate(seconds_TxP):
        bound = slowest_T[k - int(staleness) - 1] if k > staleness else 0.0
        np.maximum(finish_P, bound, out=starts_TxP[k])
        np.add(starts_TxP[k], seconds_P, out=finish_P)
        slowest_T[k] = finish_P.max()
    return starts_TxP


def k_of_p(seconds_TxP: np.ndarray, k: int) -> np.ndarray:
    """Return start times where a step ends for all when k workers have ended it."""
    kth_T = np.partition(seconds_TxP, k - 1, axis=1)[:, k - 1]
    starts_T = np.concatenate([[0.0], np.cumsum(kth_T)[:-1]])
    return np.broadcast_to(starts_T[:, None], seconds_TxP.shape)


def pace(starts_TxP: np.ndarray, skip: int = 0) -> float:
    """Return the mean seconds per step, without the first `skip` steps."""
    elapsed_P = starts_TxP[-1] - starts_TxP[skip]
    return float(elapsed_P.mean()) / (len(starts_TxP) - 1 - skip)
