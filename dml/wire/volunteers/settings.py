"""Settings of the matchmaking and averaging of volunteers."""

from typing import NamedTuple

from dml.types import BadInput
from dml.wire.volunteers.messages import is_bandwidth


class Settings(NamedTuple):
    """Settings that all peers of a run share.

    Attributes:
      width: Largest number of members of a group.
      quorum: Share of the expected peers that must arrive before a deadline is set.
      spreads: Number of median absolute deviations above the median in all deadlines.
      risk: Probability that a live peer is taken for silent in a sequence of tries.
      entries: Largest number of entries of a view in a message.
      run: Number of the run; messages of other runs are dropped.
    """

    width: int = 32
    quorum: float = 0.5
    spreads: float = 4.0
    risk: float = 1e-9
    entries: int = 64
    run: int = 0


DEFAULTS = Settings()


def check(settings: Settings, bandwidth: float) -> None:
    """Raise BadInput if the settings or the bandwidth of a peer are out of range."""
    in_range = (
        0 < settings.quorum <= 1 <= settings.width
        and settings.spreads >= 0
        and 0 < settings.risk < 1 <= settings.entries
    )
    if not (in_range and is_bandwidth(bandwidth)):
        raise BadInput(
            f"expected a quorum above 0 and up to 1, a risk between 0 and 1, a width "
            f"and entries of at least 1, spreads of 0 or more, and a bandwidth of 0 or "
            f"from 1e-30 to 1e30, got {settings} and {bandwidth}; correct them"
        )
