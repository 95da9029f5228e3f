"""A page that plays the messages of a recorded run: one HTML file, without network.

       0 ●──▶──● 1      circles: ranks, with the phase that they are in
         │     │        dots: messages in transit, coloured by what they contain
       3 ●──◀──● 2      strips: chunks of a buffer, coloured by their contributions
                        lines: pairs of ranks, as wide as the bytes in transit, or
                        links of the network with the messages that cross them
    0 ▇▇▇▇ ▇▇▇│         below: the phases of each rank, and the moment
    1 ▇▇ ▇▇▇▇▇│

The keyboard, a slider and buttons move the clock; the fragment of the address is the
moment. A frame can be saved as SVG.
"""

from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from dml.figures import pages
from dml.figures.player import network as links
from dml.types import Timeline

MAX_MESSAGES = 20_000  # later messages and phases are left out


class State(NamedTuple):
    """The chunks of a rank's buffer from a time on."""

    rank: int
    time: float
    values: Sequence[int]  # by chunk: its number of contributions, or see `Film.levels`


class Film(NamedTuple):
    """A recorded run.

    Attributes:
      title: Heading of the page.
      text: A sentence below it.
      ranks: Number of ranks.
      timeline: Messages and phases.
      states: Chunks of buffers; empty if they were not recorded.
      contents: Value of each message of the timeline; empty if not recorded.
      levels: Texts of values of chunks in the legend; empty: contributions of ranks.
      palette: Colours of the values 0, 1, …; empty: shades up to the largest level.
      colours: Colours of phases, besides those of training; other names are calls.
      names: Names of ranks; empty: their numbers.
      centre: Rank in the middle of the circle; -1: none.
      network: A network of `dml.sim.networks`, whose links are drawn; None: lines
        between ranks that exchange messages.
    """

    title: str
    text: str
    ranks: int
    timeline: Timeline
    states: Sequence[State] = ()
    contents: Sequence[int] = ()
    levels: Mapping[int, str] = MappingProxyType({})
    palette: Sequence[str] = ()
    colours: Mapping[str, str] = MappingProxyType({})
    names: Sequence[str] = ()
    centre: int = -1
    network: Any = None


def write(path: Path, film: Film) -> None:
    """Write the page."""
    texts = {"title": film.title, "text": film.text}
    pages.write(path, resources.files(__name__), texts, export(film))


def export(film: Film) -> dict[str, Any]:
    """Return the data of the page; times are fractions of the run."""
    messages = list(film.timeline.messages)
    contents = list(film.contents) or [0] * len(messages)
    kept = sorted(zip(messages, contents, strict=True), key=lambda pair: pair[0].sent)[
        :MAX_MESSAGES
    ]
    times = [one.start for one in film.timeline.intervals]
    times += [one.sent for one, _ in kept]
    begin = min(times, default=0.0)
    ends = [one.end for one in film.timeline.intervals]
    ends += [one.received for one, _ in kept]
    length = max(max(ends, default=1.0) - begin, 1e-12)

    def at(time: float) -> float:
        return round(min(max((time - begin) / length, 0.0), 1.0), 6)

    sent = [one for one, _ in kept]
    drawn = links.export(film.network, film.ranks, sent, length)
    return {
        "ranks": film.ranks,
        "seconds": length,
        "messages": [
            [one.source, one.dest, at(one.sent), at(one.received), one.nbytes, content]
            for one, content in kept
        ],
        "dropped": len(messages) - len(kept),
        "phases": [
            [one.rank, one.name, at(one.start), at(one.end)]
            for one in list(film.timeline.intervals)[:MAX_MESSAGES]
        ],
        "states": [
            [state.rank, at(state.time), list(state.values)]
            for state in sorted(film.states, key=lambda state: state.time)
        ],
        "levels": sorted((film.levels or contributions(film)).items()),
        "palette": list(film.palette),
        "colours": dict(film.colours),
        "names": list(film.names) or [str(rank) for rank in range(film.ranks)],
        "centre": -1 if drawn else film.centre,
        "network": drawn,
    }


def contributions(film: Film) -> dict[int, str]:
    """Return texts of one contribution, of half and of all."""
    p = film.ranks
    texts = {-(-p // 2): f"{-(-p // 2)}", 1: "1 contribution", p: f"all {p}"}
    return texts if film.states else {}
