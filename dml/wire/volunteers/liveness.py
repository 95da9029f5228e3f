"""Detection of silent peers: repeated messages, timed by earlier round trips.

    try      try        try             A try is late after median + k·MAD of the
     ├─ 1 ───┼── 2 ─────┼─── 3 ─── …    round trips; the r-th try waits r times as long.
                                        A peer is silent after n tries: loss^n ≤ risk.

A try is a message that expects an answer. Its timeout is proportional to the measured
round trips, and n follows from `loss`, the measured share of tries without an answer.
Before the first round trip, the timeout is the time of a message from the peer to
itself, and doubles with each try.
"""

import math
import statistics
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

WINDOW = 32  # latest round trips of which the median is computed
PRIOR = 8  # tries that are assumed before the first measurement; 1 of them is lost


@dataclass
class Watch:
    """Unanswered tries of a peer, and the time of the next try.

    Attributes:
      next: Time of the next try.
      tries: Number of tries since the last answer.
      wait: Seconds from an answer to the next try; at least doubles at each answer.
    """

    next: float
    tries: int = 0
    wait: float = 0.0


def late_after(seconds: Sequence[float], spreads: float) -> float:
    """Return the larger of median + spreads·MAD and twice the median."""
    median = statistics.median(seconds)
    deviation = statistics.median(abs(each - median) for each in seconds)
    return median + max(median, spreads * deviation)


class RoundTrips:
    """Round-trip times that a peer has measured, and its share of unanswered tries.

    Args:
      spreads: Number of median absolute deviations of a deadline.
      risk: Probability that a live peer is taken for silent because of lost messages.
      first: Timeout before the first round trip in s.
    """

    def __init__(self, spreads: float, risk: float, first: float):
        self.spreads, self.risk = spreads, risk
        self.seconds: deque[float] = deque(maxlen=WINDOW)
        self.timeout = first  # seconds after which a first try is late
        self.sent: dict[tuple[int, int], float] = {}  # by peer and number of the try
        self.number = 0
        self.tries = self.lost = 0  # of peers that have answered

    def most_tries(self) -> int:
        """Return the number of tries after which a peer is taken for silent."""
        loss = (self.lost + 1) / (self.tries + PRIOR)
        return math.ceil(math.log(self.risk) / math.log(loss))

    def silent(self, watch: Watch) -> bool:
        """Return whether a peer is taken for silent at the time of its next try."""
        return watch.tries >= self.most_tries()

    def silence(self) -> float:
        """Return the seconds from the first try until a peer is taken for silent."""
        tries = self.most_tries()
        factor = tries * (tries + 1) / 2 if self.seconds else 2.0 ** (tries + 1)
        return factor * self.timeout

    def start(self, other: int, now: float) -> int:
        """Record the start of a try of a peer, and return its number."""
        self.number += 1
        self.sent[other, self.number] = now
        while len(self.sent) > WINDOW * WINDOW:
            del self.sent[next(iter(self.sent))]
        return self.number

    def arrived(self, other: int, number: int, now: float) -> None:
        """Record the round-trip time of a try that the peer has answered."""
        if (other, number) in self.sent:
            self.seconds.append(now - self.sent.pop((other, number)))
            self.timeout = late_after(self.seconds, self.spreads)

    def tried(self, watch: Watch, now: float) -> None:
        """Count a try, and set the time of the next one."""
        watch.tries += 1
        factor = watch.tries if self.seconds else 2**watch.tries
        watch.next = now + factor * self.timeout

    def answered(self, watch: Watch, now: float) -> None:
        """Record an answer, and set the time of the next try."""
        if watch.tries:
            self.tries += watch.tries
            self.lost += watch.tries - 1
        elif self.lost:
            self.lost -= 1  # the try of this answer was late, not lost
        watch.tries, watch.wait = 0, max(2 * watch.wait, self.timeout)
        watch.next = now + watch.wait
