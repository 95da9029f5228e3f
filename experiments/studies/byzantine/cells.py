"""The cells of the heat map: rule, attack, number of attackers, skew, seed."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

NO_ATTACK = "none"  # of a cell without attackers


class Cell(NamedTuple):
    """One training.

    Attributes:
      skew: Distribution of the examples over honest workers.
      rule: Robust rule, without its number of tolerated attackers.
      attack: Attack; NO_ATTACK without attackers.
      attackers: Number of attackers, which the rule tolerates.
      seed: Random seed.
    """

    skew: str
    rule: str
    attack: str
    attackers: int
    seed: int


class Line(NamedTuple):
    """The cells of one rule, attack and skew: all numbers of attackers and seeds."""

    skew: str
    rule: str
    attack: str

    def cells(self, attackers: Sequence[int], seeds: Sequence[int]) -> Iterator[Cell]:
        """Yield the cells by attackers, then by seed.

        Without attackers there is no attack: all attacks share the cell.
        """
        for count in attackers:
            attack = self.attack if count else NO_ATTACK
            for seed in seeds:
                yield Cell(self.skew, self.rule, attack, count, seed)
