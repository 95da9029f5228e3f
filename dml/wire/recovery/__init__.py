"""Runs that survive the death of ranks: workers, spares, and the exchange of state."""

from dml.wire.recovery.members import Members as Members
from dml.wire.recovery.members import NotCommitted as NotCommitted
