"""The cells of a run of byzantine.py, and their trainings in parallel."""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product, starmap
from typing import NamedTuple

from lab import compiling, flags, parallel
from lab.progress import PROGRESS

from dml.data.skew import skewed_shards
from dml.types import BadInput
from dml.wire.reducers.robust.attacks import byzantine
from studies.byzantine import rules
from studies.byzantine.cells import Cell, Line
from studies.byzantine.report import Row, row
from studies.byzantine.training import Sizes, accuracy, labels

MAX_ATTACKERS = 1024


class ByzantinePlan(NamedTuple):
    """The trainings of a run.

    Attributes:
      skews: Skews of the shards.
      rules: Rules, without numbers of attackers.
      attacks: Attacks.
      attackers: Numbers of attackers.
      seeds: Seeds of each cell.
      sizes: Sizes of all trainings.
      processes: Largest number of processes; 0: one for each core.
    """

    skews: Sequence[str]
    rules: Sequence[str]
    attacks: Sequence[str]
    attackers: Sequence[int]
    seeds: Sequence[int]
    sizes: Sizes
    processes: int

    @property
    def lines(self) -> list[Line]:
        """The lines of the heat map, by skew, then by rule."""
        return list(starmap(Line, product(self.skews, self.rules, self.attacks)))

    def cells(self, line: Line) -> list[Cell]:
        """Return the possible cells of a line."""
        return [
            cell
            for cell in line.cells(self.attackers, self.seeds)
            if rules.tolerates(
                cell.rule, cell.attackers, self.sizes.honest + cell.attackers
            )
        ]

    @property
    def trainings(self) -> list[Cell]:
        """Every cell once, in the order of the lines."""
        every = (cell for line in self.lines for cell in self.cells(line))
        return list(dict.fromkeys(every))


def plan(values: flags.FlagValues) -> ByzantinePlan:
    """Return the trainings of the flags; raise BadInput before the first one."""
    attackers = sorted(set(counts(values)))
    made = ByzantinePlan(
        skews=unique(values.skews),
        rules=unique(values.rules),
        attacks=unique(values.attacks),
        attackers=attackers,
        seeds=flags.seeds(values),
        sizes=Sizes(
            values.data,
            values.honest,
            values.batch,
            values.steps,
            values.lr,
            values.momentum,
        ),
        processes=values.processes,
    )
    rules.check(made.rules, attackers, values.honest)
    for attack in made.attacks:
        byzantine(attack, 1)
    for skew in made.skews:
        skewed_shards(labels(values.data), values.honest, skew, values.seed)
    return made


def counts(values: flags.FlagValues) -> list[int]:
    """Return the numbers of --attackers."""
    texts = values.attackers.split(",")
    if not all(text.isdecimal() and len(text) < 5 for text in texts) or any(
        int(text) > MAX_ATTACKERS for text in texts
    ):
        raise BadInput(
            f"expected whole numbers from 0 to {MAX_ATTACKERS} in --attackers, got "
            f"{values.attackers!r:.40}; correct it"
        )
    return [int(text) for text in texts]


def unique(text: str) -> list[str]:
    """Return the comma-separated texts, each once.

    A part without letters continues the argument before it: centred_clipping:F,0.5.
    """
    parts: list[str] = []
    for part in text.split(","):
        if parts and part[:1].isdigit():
            parts[-1] += f",{part}"
        else:
            parts.append(part)
    return list(dict.fromkeys(parts))


def rows(plan: ByzantinePlan) -> Iterator[Row]:
    """Train every cell; yield the row of each line when its cells are trained."""
    cells = plan.trainings
    call, prepare = partial(accuracy, plan.sizes), compiling.enable_cache
    trained = parallel.results(call, cells, plan.processes, prepare)
    known: dict[Cell, float] = {}
    for line in plan.lines:
        by_count: dict[int, list[float]] = {count: [] for count in plan.attackers}
        for cell in plan.cells(line):
            if cell not in known:
                known[cell] = next(trained)
                PROGRESS.step(f"{cell.rule} under {cell.attack}", len(cells))
            by_count[cell.attackers].append(known[cell])
        yield row(line, by_count)
