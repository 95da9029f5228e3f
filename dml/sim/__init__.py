"""A virtual cluster; `run(program, size)` calls program(comm) on every virtual rank."""

from dml.sim.comm import VirtualComm as VirtualComm
from dml.sim.evaluate import evaluate as evaluate
from dml.sim.networks.uniform import Uniform as Uniform
from dml.sim.phantom import Phantom as Phantom
from dml.sim.run import run as run
from dml.sim.world import Deadlock as Deadlock
from dml.sim.world import Limits as Limits
