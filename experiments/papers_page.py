"""Write RESULTS.md from the records of papers: a table, and a section a paper."""

import json
import os
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from claims import FAILS, HOLDS, UNTESTED

from dml.metrics import results
from dml.types import BadInput

Record = dict[str, Any]
FOLDER, PAGE = "results", "RESULTS.md"
HEAD = """# Results: papers as commands

Written by `python experiments/papers.py --run=all`, never by hand: a run of one paper
replaces the results of that paper. Each verdict is computed from the numbers of a run
by the rule beside it, and the experiment itself uses the same rule. A claim *holds*,
*fails* or is *not testable here*."""


def kept(docs: Path, record: Record) -> None:
    """Write a paper's record to the folder that the page is made of."""
    path = docs / FOLDER / f"{record['name']}.json"
    whole(path, json.dumps(record, indent=2, ensure_ascii=False) + "\n")


def whole(path: Path, text: str) -> None:
    """Write a file atomically: another command may read it at the same time."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text(text)
    part.replace(path)


def ready(docs: Path) -> None:
    """Make the folders; raise BadInput if they cannot be written."""
    try:
        (docs / FOLDER).mkdir(parents=True, exist_ok=True)
        with (
            tempfile.TemporaryFile(dir=docs),
            tempfile.TemporaryFile(dir=docs / FOLDER),
        ):
            pass
    except OSError as error:
        raise BadInput(
            f"expected a folder to write to, got {error}; pass --docs=<another>"
        ) from error


def known(docs: Path, names: Iterable[str]) -> list[Record]:
    """Return the records of papers, in the order of names."""
    paths = (docs / FOLDER / f"{name}.json" for name in names)
    return [results.parsed(path) for path in paths if path.exists()]


def written(docs: Path, names: Iterable[str]) -> Path:
    """Write the page of all records; return its path."""
    path = docs / PAGE
    records = known(docs, names)
    drawn = {one["name"] for one in records if picture(docs, one).exists()}
    whole(path, page(records, drawn))
    return path


def picture(docs: Path, record: Record) -> Path:
    return docs / FOLDER / f"{record['name']}.svg"


def page(records: Sequence[Record], drawn: Iterable[str] = ()) -> str:
    """Return the page of records; drawn are the names of papers with a figure."""
    pictures = set(drawn)
    lines = [HEAD, "", counts(records), "", *where(records), "", *table(records)]
    for one in records:
        lines += ["", *section(one, one["name"] in pictures)]
    return "\n".join(lines) + "\n"


def counts(records: Sequence[Record]) -> str:
    verdicts = [row["verdict"] for one in records for row in one["findings"]]
    held, failed, none = (verdicts.count(word) for word in (HOLDS, FAILS, UNTESTED))
    return (
        f"Of {len(verdicts)} claims of {len(records)} papers {held} hold, {failed} "
        f"fail and {none} are not testable here."
    )


def where(records: Sequence[Record]) -> list[str]:
    """Return lines of machine, date and size, with the papers that share them."""
    found: dict[str, list[str]] = {}
    for one in records:
        found.setdefault(setting(one), []).append(one["name"])
    if len(found) == 1:
        return [f"All on {text}." for text in found]
    return [f"- {', '.join(names)}: {text}" for text, names in found.items()]


def setting(record: Record) -> str:
    if not record["commands"]:
        return "not run"
    machine = record["machine"]
    versions = ", ".join(f"{name} {one}" for name, one in record["versions"].items())
    commit, *dirty = (record["commit"] or "none").split("-")
    return (
        f"{machine['cores']} cores of {machine['processor']}, "
        f"{machine['memory_gb']} GB; {versions or 'versions unknown'}; commit "
        f"{'-'.join([commit[:12], *dirty])}; {record['date']}; size {record['size']}"
    )


def table(records: Sequence[Record]) -> list[str]:
    """Return the lines of the table, a row for each claim."""
    lines = [
        "| paper | claim | published | ours | scale | verdict |",
        "|---|---|---|---|---|---|",
    ]
    for one in records:
        for i, row in enumerate(one["findings"]):
            name = f"[{one['name']}](#{one['name']})" if not i else ""
            scale = one["scale"] if not i else ""
            cells = (name, row["claim"], row["published"], row["ours"], scale)
            said = [*map(cell, cells), f"**{row['verdict']}**"]
            lines.append(f"| {' | '.join(said)} |")
    return lines


def cell(text: str) -> str:
    """Return a text as a cell of a table: one line, with | escaped."""
    return " ".join(text.split()).replace("|", "\\|")


def section(record: Record, drawn: bool) -> list[str]:
    """Return a paper's section: claims, rules, commands and figure."""
    lines = [f"## {record['name']}", "", f"{record['cited']}.", ""]
    for row in record["findings"]:
        lines += [
            f"- **{row['claim']}**: **{row['verdict']}**. Published: "
            f"{row['published']}. Ours: {row['ours']} ({row['because']}).",
            f"  Rule: {row['rule']}",
        ]
    if record["commands"]:
        lines += ["", f"Scale: {record['scale']}.", "", "```sh"]
        lines += [*record["commands"], "```", "", spent(record)]
    if drawn:
        lines += ["", f"![{record['name']}]({FOLDER}/{record['name']}.svg)"]
    return lines


def spent(record: Record) -> str:
    took = f"{record['seconds']:.0f} s"
    if record["energy_kwh"] is None:
        return f"It took {took}; its energy is not known."
    kwh, source = record["energy_kwh"], record["energy_source"]
    return f"It took {took} and {kwh:.2g} kWh ({source})."
