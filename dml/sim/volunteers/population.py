"""Seats of volunteers: speeds, bandwidths and lifetimes; departures and newcomers."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np


class Traits(NamedTuple):
    """Distributions of volunteers. Times are exponential, and others lognormal.

    Attributes:
      lifetime: Median of the mean seconds of volunteers between join and departure;
        infinity: no departures.
      absence: Mean seconds until a newcomer takes a seat.
      bandwidth: Median bytes per second of upload.
      clients: Share of volunteers that own no part of an average (behind a NAT).
      spread: Standard deviation of the logarithms of speeds, bandwidths and mean
        lifetimes.
    """

    lifetime: float = np.inf
    absence: float = 0.0
    bandwidth: float = 1e6
    clients: float = 0.0
    spread: float = 0.0


@dataclass
class Peers:
    """The volunteers of all seats; arrays with one entry for each seat.

    Attributes:
      speed: Gradient evaluations per second, relative.
      bandwidth: Bytes per second; 0: a client.
      leaves: Time of the departure.
      begins: Time at which a volunteer begins to work, or looks for its next group.
      finishes: Time at which its work ends.
      idle: Whether it begins with new work.
      present: Whether it has joined.
      recent: Whether it was in an average of the last round.
    """

    speed: np.ndarray
    bandwidth: np.ndarray
    leaves: np.ndarray
    begins: np.ndarray
    finishes: np.ndarray
    idle: np.ndarray
    present: np.ndarray
    recent: np.ndarray


def population(size: int, traits: Traits, generator: np.random.Generator) -> Peers:
    """Return volunteers in all seats, which begin at time 0."""
    times, flags = np.zeros((5, size)), np.ones((3, size), bool)
    peers = Peers(*times, *flags)
    seat(peers, np.arange(size), np.zeros(size), traits, generator)
    return peers


def seat(
    peers: Peers,
    seats: np.ndarray,
    joins: np.ndarray,
    traits: Traits,
    generator: np.random.Generator,
) -> None:
    """Draw new volunteers for some seats.

    Args:
      peers: All seats, changed in place.
      seats: Seats of the new volunteers.
      joins: Time at which each joins.
      traits: Distributions.
      generator: Random generator.
    """
    speed, bandwidth, lifetime = np.exp(
        traits.spread * generator.standard_normal((3, len(seats)))
    )
    client = generator.random(len(seats)) < traits.clients
    peers.speed[seats] = speed
    peers.bandwidth[seats] = np.where(client, 0, traits.bandwidth * bandwidth)
    life = generator.standard_exponential(len(seats)) * lifetime
    endless = np.isinf(traits.lifetime)
    peers.leaves[seats] = np.inf if endless else joins + life * traits.lifetime


def replace(
    peers: Peers,
    seats: np.ndarray,
    download: float,
    traits: Traits,
    generator: np.random.Generator,
) -> None:
    """Replace volunteers that have left by newcomers, which download the weights first.

    Args:
      peers: All seats, changed in place.
      seats: Seats of the volunteers that have left.
      download: Seconds of the download.
      traits: Distributions.
      generator: Random generator.
    """
    away = traits.absence * generator.standard_exponential(len(seats))
    joins = peers.leaves[seats] + away
    seat(peers, seats, joins, traits, generator)
    peers.begins[seats] = joins + download
    peers.idle[seats] = True
    peers.present[seats] = peers.recent[seats] = False
