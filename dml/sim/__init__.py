"""A virtual world for any program that takes a communicator: `run(program, size)`."""

from dml.sim.comm import VirtualComm as VirtualComm
from dml.sim.networks.uniform import Uniform as Uniform
from dml.sim.phantom import Phantom as Phantom
from dml.sim.run import run as run
from dml.sim.world import Deadlock as Deadlock
from dml.sim.world import Limits as Limits
