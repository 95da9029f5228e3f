"""The roles of ranks: L learners, then actors.

rank      0   1 │ 2   3   4   5   6        2 learners and 5 actors
learner         │ 0   1   0   1   0        of each actor
"""

from typing import NamedTuple

from dml.types import BadInput


class Roles(NamedTuple):
    """The roles of ranks, and the rollouts of an update.

    Attributes:
      size: Number of ranks.
      learners: Number L of learners, which are ranks 0 to L - 1.
      batch: Number B of rollouts of an update, over all learners.
      lag: Largest number K of updates between acting and learning.
    """

    size: int
    learners: int
    batch: int
    lag: int

    @property
    def actors(self) -> int:
        """Number of actors."""
        return self.size - self.learners

    def learner(self, rank: int) -> int:
        """Return the learner of the actor on this rank."""
        return (rank - self.learners) % self.learners

    def actors_of(self, learner: int) -> range:
        """Return the ranks of a learner's actors."""
        return range(self.learners + learner, self.size, self.learners)


def roles(size: int, learners: int = 1, batch: int = 0, lag: int = 1) -> Roles:
    """Return the roles of ranks.

    Args:
      size: Number of ranks.
      learners: Number of learners.
      batch: Number of rollouts of an update; 0: the number of actors, rounded up to a
        multiple of the number of learners.
      lag: Largest number of updates between acting and learning; 0: actors and learners
        wait for each other.
    """
    if size < 2:
        raise BadInput(
            f"expected 2 ranks or more, a learner and an actor, got {size}; start them "
            "with mpirun -n <ranks>, or pass --simulate=<ranks>"
        )
    if not 1 <= learners <= size // 2:
        raise BadInput(
            f"expected 1 to {size // 2} learners of {size} ranks, each with an actor, "
            f"got {learners}; pass --learners=<at most {size // 2}> or more ranks"
        )
    actors = size - learners
    batch = batch or -(-actors // learners) * learners
    if batch < 1 or batch % learners:
        raise BadInput(
            f"expected equally many rollouts for each of {learners} learners, got "
            f"{batch}; pass a multiple of {learners} as --batch"
        )
    least = int(actors > batch)  # 0: an update takes a rollout of every actor
    if lag < least:
        raise BadInput(
            f"expected a lag bound of {least} or more with {actors} actors and {batch} "
            f"rollouts of an update, got {lag}; pass --lag={least}"
            + (f" or --batch={-(-actors // learners) * learners}" if least else "")
        )
    return Roles(size, learners, batch, lag)
