"""Write docs/players/: pages that play the classic all-reduces on 8 virtual ranks.

    python launch/players.py

A test compares the pages with what this module writes.
"""

import importlib
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs/players"
NETWORKS = dict.fromkeys(("star", "tree", "butterfly", "ring"), "uniform")
NETWORKS["hierarchical"] = "hosts:2x4"


def write(folder: Path) -> None:
    """Write the pages into a folder."""
    film = importlib.import_module("studies.allreduce.film")
    for name, network in NETWORKS.items():
        film.write(folder / f"{name}.html", name, 8, network, 1 << 22)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "experiments"))
    PAGES.mkdir(exist_ok=True)
    write(PAGES)
    sys.stdout.write(f"{PAGES.relative_to(ROOT)}\n")
