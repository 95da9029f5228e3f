"""All-reduce by hand, by MPI and by cost model, side by side.

mpirun -n 8 python experiments/allreduce.py
mpirun -n 2 python experiments/allreduce.py --sizes=4KB --buffers=plain --peers
python experiments/allreduce.py --simulate=64 --network=1e-6,1e-10,1e-10 --group=8

Cost: 20 s on 2 cores with 8 ranks. Result: a table, and a figure of measured and
predicted seconds; on registered buffers `auto` beats MPI's own at every size.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import flags
import numpy as np

from dml.metrics import runs, writers
from dml.types import BadInput, Comm, CountedComm
from dml.wire import cost
from dml.wire.buffers import allocate, release
from dml.wire.messages import ALLREDUCE, checked, chosen, rates
from dml.wire.messages.check import replicas_agree
from dml.wire.messages.race import race
from dml.wire.topology import groups

FLAGS = flags.define(
    *("out", "seed", "simulate", "network", "watchdog", "check", "group", "dtype")
)
names = partial(flags.names, flag_values=FLAGS)
flags.sizes("sizes", "4KB,256KB,4MB,32MB", "Bytes of a buffer.", flag_values=FLAGS)
names("algorithms", "all", list(ALLREDUCE), "All-reduces to race.")
names("buffers", "registered,plain", ["registered", "plain"], "Kinds of memory.")
flags.choice(
    "outside", "ring", list(cost.WORDS), "Across groups.", flag_values=FLAGS
)
flags.integer("repeats", 7, "Timings, of which the median.", 1, flag_values=FLAGS)
flags.switch("peers", False, "Race torch's gloo and jax's psum.", flag_values=FLAGS)
