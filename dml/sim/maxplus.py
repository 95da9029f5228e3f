"""When every step of every worker ends, by max and plus alone, without running ranks.

X_TxP comes in, the seconds that worker p computes in step t; finish times go out. Here
messages take no time: what waiting costs, and nothing else.
"""

import numpy as np


def ssp(seconds_TxP: np.ndarray, staleness: float = 0) -> np.ndarray:
    """Return F_TxP where a worker is at most `staleness` clocks ahead of the slowest.

    S_i(k) = max(F_i(k-1), max_j F_j(k-s-1)), F = S + X (Ho 2013): s = 0 is
    synchronous, infinity asynchronous.
    """
    finish_TxP = np.empty_like(seconds_TxP)
    start_P = np.zeros(seconds_TxP.shape[1])
    for k, seconds_P in enumerate(seconds_TxP):
        if k > staleness:
            start_P = np.maximum(start_P, finish_TxP[k - int(staleness) - 1].max())
        start_P = finish_TxP[k] = start_P + seconds_P
    return finish_TxP


def k_of_p(seconds_TxP: np.ndarray, k: int) -> np.ndarray:
    """Return F_TxP where a step ends for all with its k-th: the late are cut off."""
    kth_T = np.partition(seconds_TxP, k - 1, axis=1)[:, k - 1]
    ends_T = np.cumsum(kth_T)
    starts_Tx1 = np.concatenate([[0.0], ends_T[:-1]])[:, None]
    return starts_Tx1 + np.minimum(seconds_TxP, kth_T[:, None])


def pace(starts_TxP: np.ndarray, skip: int = 0) -> float:
    """Return the mean time from start to start, after `skip` steps of settling in."""
    gone = starts_TxP[-1] - starts_TxP[skip]
    return float(gone.mean()) / (len(starts_TxP) - 1 - skip)
