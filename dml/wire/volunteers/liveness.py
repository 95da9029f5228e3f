"""Detection of silent peers: tries, with times from earlier round trips.

    try      try        try             A try is late after median + k·MAD of the
     ├─ 1 ───┼── 2 ─────┼─── 3 ─── …    round trips; the r-th try waits r times as long.
                                        A peer is silent after n tries: loss^n ≤ risk.

Times scale with the round trips, and the number of tries follows from the share of
tries without an answer. Before the first round trip, a message from the peer to itself
takes its place, and each try waits twice as long as the one before.
"""

import math
import statistics
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

WINDOW = 32  # round trips that are remembered
PRIOR = 8  # tries, one of them lost, before the first measurement


@dataclass
class Watch:
    """Tries at a peer that is expected to answer.

    Attributes:
      next: Time of the next try.
      tries: Number of tries since the last answer.
      wait: Seconds between an answer and the next try; doubles with every answer.
    """

    next: float
    tries: int = 0
    wait: float = 0.0


def late(seconds: Sequence[float], spreads: float) -> float:
    """Return median + spreads·MAD, or twice the median if that is more."""
    median = statistics.median(seconds)
    deviation = statistics.median(abs(each - median) for each in seconds)
    return median + max(median, spreads * deviation)


class RoundTrips:
    """Round-trip times of a peer and the share of tries that had no answer.

    Args:
      spreads: Number of median absolute deviations of a deadline.
      risk: Probability that a peer is taken for silent by lost messages only.
      first: Seconds of a message from the peer to itself, or less.
    """

    def __init__(self, spreads: float, risk: float, first: float):
        self.spreads, self.risk = spreads, risk
        self.seconds: deque[float] = deque(maxlen=WINDOW)
        self.late = first  # result of `timeout`
        self.sent: dict[int, float] = {}  # time of each try, by number
        self.number = 0
        self.asked = self.lost = 0  # tries at peers that have answered

    def timeout(self) -> float:
        """Return the seconds after which a first try is late."""
        return self.late

    def most_tries(self) -> int:
        """Return the number of tries after which a peer is taken for silent."""
        loss = (self.lost + 1) / (self.asked + PRIOR)
        return math.ceil(math.log(self.risk) / math.log(loss))

    def silent(self, watch: Watch) -> bool:
        """Return whether a peer is taken for silent, when the next try is due."""
        return watch.tries >= self.most_tries()

    def silence(self) -> float:
        """Return the seconds of all tries until a peer is taken for silent."""
        tries = self.most_tries()
        factor = tries * (tries + 1) / 2 if self.seconds else 2.0 ** (tries + 1)
        return factor * self.timeout()

    def start(self, now: float) -> int:
        """Return the number of a new try."""
        self.number += 1
        self.sent[self.number] = now
        while len(self.sent) > WINDOW * WINDOW:
            del self.sent[next(iter(self.sent))]
        return self.number

    def arrived(self, number: int, now: float) -> None:
        """Record the round trip of a try that is answered."""
        if number in self.sent:
            self.seconds.append(now - self.sent.pop(number))
            self.late = late(self.seconds, self.spreads)

    def tried(self, watch: Watch, now: float) -> None:
        """Set the time of the next try."""
        watch.tries += 1
        factor = watch.tries if self.seconds else 2**watch.tries
        watch.next = now + factor * self.timeout()

    def answered(self, watch: Watch, now: float) -> None:
        """Record an answer, and set the time of the next try."""
        if watch.tries:
            self.asked += watch.tries
            self.lost += watch.tries - 1
        elif self.lost:
            self.lost -= 1  # its try was late, not lost
        watch.tries, watch.wait = 0, max(2 * watch.wait, self.timeout())
        watch.next = now + watch.wait
