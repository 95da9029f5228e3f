"""The clocks of a server: how many each worker has ended, and how many are closed."""


class Clocks:
    """Clocks of workers. One closes when all, or all but the backups, have ended it.

    workers: number of workers.
    backups: number of workers that need not end a clock to close it.
    """

    def __init__(self, workers: int, backups: int):
        self.backups = backups
        self.closed = 0  # number of closed clocks
        self.ended = [0] * workers  # number of clocks that each worker has ended
        self.total = 0  # sum of the clocks of all workers
        self.left = workers  # workers that are not dropped
        self.finished = 0  # number of workers that have ended the open clock
        self.needed = workers - backups  # that must end it to close it

    def end(self, worker: int, clock: int) -> bool:
        """Set the number of clocks that a worker has ended; return whether one closes.

        Args:
          worker: The worker.
          clock: Number of clocks.
        """
        self.finished += self.ended[worker] <= self.closed < clock
        self.total += clock - self.ended[worker]
        self.ended[worker] = clock
        return self.finished >= self.needed

    def close(self) -> bool:
        """Close a clock; return whether the next one closes, too."""
        self.closed += 1
        self.finished = sum(ended > self.closed for ended in self.ended)
        return self.finished >= self.needed

    def drop(self, worker: int) -> bool:
        """Wait no longer for a worker; return whether a clock closes."""
        self.finished -= self.ended[worker] > self.closed
        self.ended[worker] = -1
        self.left -= 1
        self.needed = max(1, self.left - self.backups)
        return self.finished >= self.needed
