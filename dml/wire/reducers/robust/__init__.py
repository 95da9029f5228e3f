"""Robust estimates of the mean of gradients, some of which are arbitrary (Byzantine).

    n terms ──► mixing ──► rule ──► estimate of the mean
                nnm, …     krum, …

`robust(krum(2), nnm)` is a reducer; `estimate(krum(2), rows)` the same in one process.
"""

from dml.wire.reducers.robust.centres import centred_clipping as centred_clipping
from dml.wire.reducers.robust.centres import geometric_median as geometric_median
from dml.wire.reducers.robust.columns import mean as mean
from dml.wire.reducers.robust.columns import median as median
from dml.wire.reducers.robust.columns import sign_majority as sign_majority
from dml.wire.reducers.robust.columns import trimmed_mean as trimmed_mean
from dml.wire.reducers.robust.estimate import estimate as estimate
from dml.wire.reducers.robust.mixing import bucketing as bucketing
from dml.wire.reducers.robust.mixing import clipping as clipping
from dml.wire.reducers.robust.mixing import nnm as nnm
from dml.wire.reducers.robust.points import Points as Points
from dml.wire.reducers.robust.reducer import robust as robust
from dml.wire.reducers.robust.rule import Attack as Attack
from dml.wire.reducers.robust.rule import Byzantine as Byzantine
from dml.wire.reducers.robust.rule import Mixing as Mixing
from dml.wire.reducers.robust.rule import Rule as Rule
from dml.wire.reducers.robust.rule import Slice as Slice
from dml.wire.reducers.robust.selection import bulyan as bulyan
from dml.wire.reducers.robust.selection import krum as krum
from dml.wire.reducers.robust.selection import mda as mda
from dml.wire.reducers.robust.selection import multi_krum as multi_krum
