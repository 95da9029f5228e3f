"""List run folders, or write one HTML page of their tables, curves and figures.

    python -m dml.runs                            the last 30 runs in runs/
    python -m dml.runs runs/glove --last=5
    python -m dml.runs runs/linear --report       writes runs/linear/report.html
    python -m dml.runs runs/linear runs/sweeps/glove --report --out=glove.html --open

The page has every run at or under the paths and needs no network. The same folders give
an identical page. Folders that cannot be read are listed on stderr and on the page.

Cost: a page of 200 runs, each with 1000 rows of 6 columns and a figure of 60 kB, takes
2.6 s of one core and 7 MB. A page of 1000 runs opens in 0.8 s of one core.
"""

import argparse
import sys
import webbrowser
from collections.abc import Sequence
from pathlib import Path

from dml import processes
from dml.runs import writers
from dml.runs.listing import ListedRun, Skipped, counted, find_runs, number
from dml.types import BadInput

PROGRAM = "python -m dml.runs"
RUNS = "runs"  # the folder of commands without --out
LAST = 30
STATUS = 11  # characters
MEASURES = {"loss": (9, ".5g"), "accuracy": (8, ".1%"), "seconds": (8, ".4g")}


def main(argv: Sequence[str]) -> None:
    """List the runs at or under the paths of the command line, or write their page."""
    arguments = parse_arguments(argv)
    page = arguments.report or arguments.out or arguments.open
    runs, skipped = find_runs(arguments.paths, rows=page)
    if not runs:
        reasons = "; ".join(f"{folder.path}: {folder.reason}" for folder in skipped)
        raise BadInput(f"expected run folders to list, got none ({reasons})")
    if page:
        write_page(arguments, runs, skipped)
    else:
        show(sorted(runs, key=lambda run: run.began), arguments.last)
    for folder in skipped:
        sys.stderr.write(f"{PROGRAM}: skipped {folder.path}: {folder.reason}\n")


def parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    """Return the values of the command line."""
    summary, _, examples = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description=summary,
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("paths", nargs="*", type=Path, help=f"run folders or folders of them [{RUNS}]")
    add("--last", type=int, default=LAST, help=f"number of runs to list [{LAST}]")
    add("--report", action="store_true", help="HTML page in place of the list")
    add("--out", metavar="FILE", type=Path, help="path of the page [report.html]")
    add("--open", action="store_true", help="browser in which the page is opened")
    arguments = parser.parse_args(argv[1:])
    if arguments.last < 1:
        raise BadInput(f"expected --last of 1 or more, got --last={arguments.last}")
    arguments.paths = arguments.paths or [Path(RUNS)]
    return arguments


def write_page(
    arguments: argparse.Namespace,
    runs: Sequence[ListedRun],
    skipped: Sequence[Skipped],
) -> None:
    """Write the page of the runs, and open it if asked for."""
    from dml.runs.report import page  # needs jinja2, of the extra `commands`

    out = arguments.out or page.default_path(arguments.paths)
    size = page.write(out, runs, skipped)
    sys.stdout.write(f"{out}: {counted(runs)}, {size / 1e6:.1f} MB\n")
    if arguments.open and not webbrowser.open(out.resolve().as_uri()):
        raise BadInput(f"expected a browser for --open, got none; open {out}")


def show(runs: Sequence[ListedRun], last: int) -> None:
    """Print a table of the last runs."""
    shown = runs[-last:]
    width = max(len("run"), *(len(run.name) for run in shown))
    columns: dict[str, tuple[int, str]] = {
        "run": (width, "{run}"),
        "status": (STATUS, "{status}"),
    }
    columns |= {
        name: (size, f"{{{name}:{form}}}") for name, (size, form) in MEASURES.items()
    }
    row = writers.printer(columns, wide=True)
    for run in shown:
        values = {name: number(run.results.summary.get(name)) for name in MEASURES}
        row({"run": run.name, "status": run.status} | values)
    earlier = runs[:-last]
    if earlier:
        text = f"{counted(earlier).replace('run', 'earlier run')} not shown"
        sys.stdout.write(f"{text}: --last={len(runs)}\n")


if __name__ == "__main__":
    try:
        with processes.safe_output():
            main(sys.argv)
    except BadInput as error:
        sys.stderr.write(f"{PROGRAM}: {' '.join(str(error).split())}\n")
        sys.exit(2)
