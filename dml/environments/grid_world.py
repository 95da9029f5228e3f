"""A grid world: a maze from a start to a goal, as a tabular process.

    S · · # · · · ·     S start, G goal, # wall
    · # · # · # # ·
    · # · · · # · ·     actions: up, right, down, left;
    · # # # # # · #     a move into a wall or off the grid has no effect
    · · · · · · · G

The reward of a step is -0.01, and of the step to the goal 1. Episodes have at most 100
steps. An observation is the cell in one-hot code, without walls.
"""

import numpy as np

from dml.environments import tabular
from dml.types import Environment

MAP = """
S..#....
.#.#.##.
.#...#..
.#####.#
.......G
"""
MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))  # rows, columns
COST, GOAL = -0.01, 1.0  # rewards
LIMIT = 100
SOLVED = 0.85


def cells(text: str = MAP) -> list[tuple[int, int]]:
    """Return (row, column) of each cell that is not a wall, in the order of states."""
    rows = text.split()
    return [
        (y, x)
        for y, row in enumerate(rows)
        for x, mark in enumerate(row)
        if mark != "#"
    ]


def process(text: str = MAP) -> tabular.Process:
    """Return the process of a map."""
    rows, places = text.split(), cells(text)
    number = {place: state for state, place in enumerate(places)}
    marks = np.array([rows[y][x] for y, x in places])
    transitions = np.zeros((len(places), len(MOVES), len(places)))
    for state, (y, x) in enumerate(places):
        for action, (down, right) in enumerate(MOVES):
            target = number.get((y + down, x + right), state)
            transitions[state, action, target] = 1
    goal = marks == "G"
    rewards = COST + (GOAL - COST) * transitions @ goal
    return tabular.Process(
        transitions, rewards, goal, (marks == "S") / sum(marks == "S")
    )


GRID_WORLD: Environment = tabular.environment("grid_world", process(), LIMIT, SOLVED)
