"""Write docs/commands.md: the commands of experiments/ by topic, with their papers.

    python launch/commands.py

The tables are docs/commands.toml and experiments/studies/papers/papers.toml. The figure
of a command is that of docs/figures with its name, one with another name in its row, or
a paper's; none: the command draws no figure. A test compares the page with what this
module writes.
"""

import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/commands.md"
COMMANDS = ROOT / "docs/commands.toml"
PAPERS = ROOT / "experiments/studies/papers/papers.toml"
HEAD = """\
# Commands

Every command of `experiments/`, by topic. Times are those of a run on two idle cores of
AMD EPYC or Intel Xeon (Sapphire Rapids) virtual machines, in several versions. The
first line of `--help` has the time of your last run. A command without a figure draws
none. A paper leads to its claims, with published number, our number and verdict.

Written by `python launch/commands.py` from `docs/commands.toml`.
"""


def page() -> str:
    """Return the page as Markdown."""
    topics = tomllib.loads(COMMANDS.read_text("utf-8"))
    papers = tomllib.loads(PAPERS.read_text("utf-8"))
    return "\n".join([HEAD, *lines(topics, papers)])


def lines(topics: dict[str, Any], papers: dict[str, Any]) -> Iterator[str]:
    """Yield a table for each topic."""
    for topic, commands in topics.items():
        yield f"## {topic}\n"
        yield "| figure | command | time | papers |\n|---|---|---|---|"
        for name, (command, shows, time, *drawn) in commands.items():
            cited = [paper for paper in papers if name in scripts(papers[paper])]
            links = ", ".join(f"[{paper}](RESULTS.md#{paper})" for paper in cited)
            thumbnail = figure(name, [*drawn, name], cited)
            cells = thumbnail, f"`{command}`<br>{shows}", time, links
            yield f"| {' | '.join(cells)} |"
        yield ""


def scripts(paper: dict[str, Any]) -> set[str]:
    """Return the names of the commands that reproduce a paper."""
    commands = paper.get("commands", {}).values()
    return {Path(command["script"]).stem for command in commands}


def figure(name: str, own: list[str], papers: list[str]) -> str:
    """Return the first figure of a command or of its papers; none without one."""
    paths = [f"figures/{each}{end}" for each in own for end in (".svg", ".png")]
    for path in [*paths, *(f"results/{each}.svg" for each in [*own, *papers])]:
        if (PAGE.parent / path).exists():
            size = 'width="120" loading="lazy"'
            return f'<a href="{path}"><img src="{path}" alt="{name}" {size}></a>'
    return "none"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
    sys.stdout.write(f"{PAGE.relative_to(ROOT)}\n")
