"""Run the commands of docs/measured again, one after another; resumable.

    python launch/measure.py --list                what would run, and what has run
    python launch/measure.py                       all pages, hours; overnight
    python launch/measure.py --only=glove,server   some pages

Each block of commands of a page runs in its own folder of --out, with output.txt and
record.json: commands, exit code, seconds, commit, load of other programs, and hardware.
Blocks that ended well at this commit are not run again. The exit code is 1 if a block
failed.
Run it on an idle machine from a clean tree: a record says if it was not. The papers are
`python experiments/papers.py --run=all`.
"""

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dml.runs.folder import commit
from dml.runs.hardware import describe_processor, load_of_others

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs" / "measured"
BLOCK = re.compile(r"^```sh\n(.*?)^```", re.DOTALL | re.MULTILINE)
LINKS = ("experiments", "docs", "tests", "README.md")  # that commands name
LAUNCH = re.compile(r"(?<![\w./])launch/")  # scripts that look for their own folder
MAX_LOAD = 1.0  # mean number of cores busy with other programs


class Block(NamedTuple):
    """Commands that run in one folder, in order."""

    page: str
    number: int
    commands: str

    @property
    def name(self) -> str:
        """Name of the folder."""
        return f"{self.page}-{self.number}"


def blocks(pages: Sequence[str] = ()) -> list[Block]:
    """Return the blocks of some pages, or of all."""
    found = []
    for path in sorted(PAGES.glob("*.md")):
        if not pages or path.stem in pages:
            texts = BLOCK.findall(path.read_text("utf-8"))
            found += [Block(path.stem, k, text) for k, text in enumerate(texts, 1)]
    return found


def record(folder: Path) -> dict[str, Any]:
    """Return the record of a folder; empty if there is none."""
    path = folder / "record.json"
    return json.loads(path.read_text("utf-8")) if path.exists() else {}


def _is_done(found: dict[str, Any], block: Block, at: str) -> bool:
    """Return whether these commands ended well at this commit."""
    return (
        found.get("code") == 0
        and found["commit"] == at
        and found["commands"] == block.commands
    )


def _run(block: Block, folder: Path, at: str) -> dict[str, Any]:
    """Run a block in an empty folder; write and return its record."""
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    for name in LINKS:
        (folder / name).symlink_to(ROOT / name)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    load, begun = load_of_others(), time.perf_counter()
    with (folder / "output.txt").open("w", encoding="utf-8") as output:
        code = subprocess.run(
            ["bash", "-e", "-c", LAUNCH.sub(f"{ROOT}/launch/", block.commands)],
            cwd=folder,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
        ).returncode
    found = {
        "commands": block.commands,
        "code": code,
        "seconds": round(time.perf_counter() - begun, 1),
        "commit": at,
        "load": round(load(), 2),
        **describe_processor(),
        "python": platform.python_version(),
    }
    (folder / "record.json").write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    return found


def _status(found: dict[str, Any], block: Block, at: str) -> str:
    """Return the status of a block, as a cell."""
    if not found:
        return "not run"
    if found["code"]:
        return f"failed with code {found['code']} after {found['seconds']:g} s"
    if not _is_done(found, block, at):
        return f"ran at {found['commit'][:12]}, {found['seconds']:g} s"
    doubts = [] if found["load"] <= MAX_LOAD else [f"load {found['load']:g} beside it"]
    doubts += ["modified tree"] if "-dirty" in at else []
    return f"{found['seconds']:g} s{''.join(f', {text}' for text in doubts)}"


def _lines(found: Sequence[Block], out: Path, at: str) -> Iterator[str]:
    """Yield the blocks and their commands, with their earlier records."""
    for block in found:
        yield f"{block.name}: {_status(record(out / block.name), block, at)}"
        yield from (f"    {line}" for line in block.commands.splitlines())


def main(argv: Sequence[str]) -> int:
    """List or run the blocks; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--list", action="store_true", help="List of blocks only.")
    parser.add_argument("--only", default="", help="Pages of docs/measured, by commas.")
    parser.add_argument("--out", default="runs/measured", help="Folder of the records.")
    options = parser.parse_args(argv)
    pages = [name for name in options.only.split(",") if name]
    known = {path.stem for path in PAGES.glob("*.md")}
    if unknown := [name for name in pages if name not in known]:
        parser.error(
            f"expected pages of {', '.join(sorted(known))}, got {unknown[0]!r}"
        )
    found, out, at = blocks(pages), Path(options.out).absolute(), commit() or "none"
    if options.list:
        print("\n".join(_lines(found, out, at)))
        return 0
    failed = []
    for block in found:
        folder = out / block.name
        if _is_done(record(folder), block, at):
            continue
        print(f"{block.name} ...", flush=True)
        if _run(block, folder, at)["code"]:
            failed.append(block.name)
        print(f"{block.name}: {_status(record(folder), block, at)}", flush=True)
    if failed:
        print(f"failed: {', '.join(failed)}; see output.txt in {out}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
