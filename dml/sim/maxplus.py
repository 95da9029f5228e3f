"""Compute start times of all steps of all workers with max-plus recurrences.

The input is an array steps x workers of seconds of computation, the result an array of
start times. Messages take no time: only waiting is modelled.
"""

import numpy as np


def ssp(seconds_TxP: np.ndarray, staleness: float = 0) -> np.ndarray:
    """Return start times of stale synchronous parallel steps (Ho 2013).

    Step k of a worker starts after its step k-1, and after step k-s-1 of all workers,
    where s is the staleness. s = 0 is synchronous, s = ∞ asynchronous.
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
    """Return start times if a step ends for all workers once k workers end it."""
    kth_T = np.partition(seconds_TxP, k - 1, axis=1)[:, k - 1]
    starts_T = np.concatenate([[0.0], np.cumsum(kth_T)[:-1]])
    return np.broadcast_to(starts_T[:, None], seconds_TxP.shape)


def seconds_per_step(starts_TxP: np.ndarray, skip: int = 0) -> float:
    """Return the mean seconds per step, without the first `skip` steps."""
    elapsed_P = starts_TxP[-1] - starts_TxP[skip]
    return float(elapsed_P.mean()) / (len(starts_TxP) - 1 - skip)
