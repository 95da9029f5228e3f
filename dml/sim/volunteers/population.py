"""The population of volunteers: speeds, bandwidths, lifetimes and replacements."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np


class Traits(NamedTuple):
    """Distributions of volunteers: exponential for times, lognormal for others.

    Attributes:
      lifetime: Median over volunteers of their mean lifetimes, from join to departure,
        in s; infinity: no departures.
      absence: Mean seconds until a newcomer takes a seat.
      bandwidth: Median bytes per second of upload.
      clients: Share of volunteers behind a NAT, which own no part of an average.
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
    """The volunteers of all seats, as arrays with one entry for each seat.

    Attributes:
      speed: Relative number of gradient evaluations per second.
      bandwidth: Bytes per second of upload; 0: a client.
      leaves: Time of the departure of the volunteer.
      begins: Time at which the volunteer begins its work, or enters the next round.
      finishes: Time at which the work of the volunteer ends.
      idle: Whether the volunteer begins with new work.
      present: Whether the volunteer has joined.
      recent: Whether the volunteer received an average in the last round.
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
    """Return a population in which the volunteers of all seats begin at time 0."""
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
    """Draw a new volunteer for each seat of an array, in place.

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
    """Replace departed volunteers by newcomers that first download the weights.

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
