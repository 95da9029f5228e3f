"""Matchmaking and averaging of peers that may vanish at any time, without a master."""

from dml.wire.volunteers.averaging import Averaged, average, settle
from dml.wire.volunteers.matchmaking import find_group
from dml.wire.volunteers.peer import Group, Peer
from dml.wire.volunteers.settings import Settings

__all__ = [
    "Averaged",
    "Group",
    "Peer",
    "Settings",
    "average",
    "find_group",
    "settle",
]
