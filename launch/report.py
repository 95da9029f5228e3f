"""Write one self-contained HTML page of run folders: tables, curves and figures.

python launch/report.py runs/linear                    writes runs/linear/report.html
python launch/report.py runs/linear runs/sweeps/glove --out=glove.html

The page has every run folder at or under the paths and needs no network. Unreadable
folders are listed on stderr and on the page. The same folders give an identical page.

Cost: a page of 200 runs, each with 1000 rows of 6 columns and a figure of 60 kB, takes
2.6 s of one core and 7 MB. A page of 1000 runs opens in 0.8 s of one core.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import report_page
import report_runs
from absl import flags

from dml import processes
from dml.types import BadInput

FLAGS = flags.FlagValues()
flags.DEFINE_boolean("help", False, "Show this help.", flag_values=FLAGS)
flags.DEFINE_string(
    "out",
    None,
    "Path of the page [report.html in the folder of all runs].",
    flag_values=FLAGS,
)
PAGE = "report.html"


def main(argv: Sequence[str]) -> None:
    """Write the page of the run folders at or under the paths of the command line."""
    paths = parse_arguments(argv)
    listed, skipped = report_runs.find_runs(paths)
    if not listed:
        reasons = "; ".join(f"{folder.path}: {folder.reason}" for folder in skipped)
        raise BadInput(f"expected run folders to report, got none ({reasons})")
    page = report_page.page(listed, skipped).encode("utf-8", "replace")
    out = Path(FLAGS.out) if FLAGS.out else default_page(paths)
    write_page(out, page)
    for folder in skipped:
        sys.stderr.write(f"report.py: skipped {folder.path}: {folder.reason}\n")
    count = f"{len(listed)} run{'s' * (len(listed) != 1)}"
    sys.stdout.write(f"{out}: {count}, {len(page) / 1e6:.1f} MB\n")


def parse_arguments(argv: Sequence[str]) -> list[Path]:
    """Set the flags; return the paths."""
    FLAGS.unparse_flags()
    FLAGS.set_gnu_getopt(True)  # flags may come after paths
    try:
        _, *paths = FLAGS(argv)
    except flags.Error as error:
        raise BadInput(f"{error}; --help lists the flags") from error
    if FLAGS.help:
        sys.stdout.write(f"{__doc__}\n{FLAGS.get_help()}\n")
        sys.exit(0)
    if not paths:
        raise BadInput(
            "expected run folders, got none; pass a path such as runs/<experiment>"
        )
    return [Path(path) for path in paths]


def default_page(paths: Sequence[Path]) -> Path:
    """Return the page in the folder of the paths, or the folder that contains all."""
    shared = os.path.commonpath([os.path.abspath(path) for path in paths])
    return Path(os.path.relpath(shared), PAGE)


def write_page(path: Path, page: bytes) -> None:
    """Write the page; raise BadInput if the path cannot be written."""
    try:
        path.write_bytes(page)
    except (OSError, ValueError) as error:
        raise BadInput(
            f"expected a file to write, got --out={path} ({error}); pass another path"
        ) from error


if __name__ == "__main__":
    try:
        with processes.safe_output():
            main(sys.argv)
    except BadInput as error:
        sys.stderr.write(f"report.py: {' '.join(str(error).split())}\n")
        sys.exit(2)
