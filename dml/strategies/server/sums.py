"""What the reports of one run after another say together, on all ranks."""

from typing import Any

import numpy as np

from dml.strategies.server.report import WORK, Report
from dml.types import CountedComm
from dml.wire.messages import tree_allreduce

STALEST = 1023  # what is staler is counted as this


class Sums:
    """Adds up what the epochs' reports say, on all ranks."""

    def __init__(self) -> None:
        self.gradients_by_staleness = np.zeros(STALEST + 1)
        self.work = np.zeros(len(WORK))
        self.late = 0

    def add(self, comm: CountedComm, report: Report) -> None:
        stale = [one.staleness for one in report.log if one.rows and not one.late]
        counts = np.bincount(
            np.minimum(np.array(stale, np.int64), STALEST), minlength=STALEST + 1
        )
        late = sum(one.late for one in report.log)
        found = np.concatenate([counts, report.work.sum(0), [late]])
        tree_allreduce(comm, found)
        self.gradients_by_staleness += found[: STALEST + 1]
        self.work += found[STALEST + 1 : -1]
        self.late += int(found[-1])

    def summary(self) -> dict[str, Any]:
        """Return the numbers of all epochs so far."""
        counts = np.trim_zeros(self.gradients_by_staleness, "b")
        work = dict(zip(WORK, self.work.tolist(), strict=True))
        busy = work["computed"] + work["waited"]
        return {
            "staleness": counts.astype(int).tolist(),
            "staleness_mean": float(np.arange(len(counts)) @ counts)
            / (counts.sum() or 1),
            "staleness_max": max(0, len(counts) - 1),
            "late": self.late,
            "idle_share": work["waited"] / (busy or 1),
            "keys_sent": int(work["keys_sent"]),
            "keys_known": int(work["keys_known"]),
            "nonfinite": int(work["nonfinite"]),
        }
