"""The clocks of a server: numbers of ended clocks by worker, and of closed clocks."""


class Clocks:
    """Clocks of workers; a clock closes when all but the backup workers have ended it.

    workers: number of workers.
    backups: number of backup workers, whose end a clock does not require.
    """

    def __init__(self, workers: int, backups: int):
        self.backups = backups
        self.closed = 0  # number of closed clocks
        self.ended = [0] * workers  # number of clocks that each worker has ended
        self.total = 0  # sum of the clocks of all workers
        self.left = workers  # workers that are not dropped
        self.finished = 0  # number of workers that have ended the open clock
        self.needed = workers - backups  # number of workers that must end a clock

    def end(self, worker: int, clock: int) -> bool:
        """Set the number of ended clocks of a worker; return whether a clock closes.

        Args:
          worker: The worker.
          clock: Number of clocks that the worker has ended.
        """
        self.finished += self.ended[worker] <= self.closed < clock
        self.total += clock - self.ended[worker]
        self.ended[worker] = clock
        return self.finished >= self.needed

    def close(self) -> bool:
        """Close a clock; return whether the next clock closes, too."""
        self.closed += 1
        self.finished = sum(ended > self.closed for ended in self.ended)
        return self.finished >= self.needed

    def drop(self, worker: int) -> bool:
        """Remove a worker from the waiting; return whether a clock closes."""
        self.finished -= self.ended[worker] > self.closed
        self.ended[worker] = -1
        self.left -= 1
        self.needed = max(1, self.left - self.backups)
        return self.finished >= self.needed
