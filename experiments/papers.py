"""Reproduce papers: published numbers, measured numbers and verdicts.

python experiments/papers.py --list
python experiments/papers.py --run=hogwild --quick
python experiments/papers.py --run=all --docs=docs     replaces docs/RESULTS.md
python experiments/papers.py --run=all --size=tiny     a test of all commands

The commands of a paper run one after another, each in a folder of this run. A claim is
judged by a rule that is defined next to the experiment and used by the experiment
itself: it holds, fails, or is not testable here. If a command fails, the claims of its
paper are not tested and the exit code is 1.

Cost: all papers take 11 minutes with --quick and 26 in full on 2 cores; tiny takes 2
minutes on one core.
"""

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from lab import flags, writing
from lab.claims import FAILS, HOLDS, UNTESTED, judge
from lab.progress import PROGRESS
from studies.papers import page as papers_page
from studies.papers import runs as papers_runs
from studies.papers.runs import PAPERS, SIZES, Paper

from dml.runs import folder, writers
from dml.runs.results import Run
from dml.runs.writers import Row
from dml.types import BadInput

MAX_FIGURE_BYTES = 150_000  # bytes of a figure in the docs
SILENCE = 10.0  # most seconds without output

FLAGS = flags.define()
FLAGS.text(
    "run", "", f"Comma-separated names of papers, of {', '.join(PAPERS)}; or all."
)
FLAGS.choice("size", SIZES[0], SIZES, "Size of the runs.")
FLAGS.switch("quick", False, "Short for --size=quick.")
FLAGS.switch("list", False, "List of papers and claims, without running them.")
FLAGS.text("docs", None, "Folder for RESULTS.md and results/ [the run folder].")

COLUMNS = {
    "paper": (16, lambda row: row["paper"]),
    "verdict": (17, lambda row: row["verdict"]),
    "claim: measured (reason)": (
        20,
        lambda row: f"{row['claim']}: {row['ours']} ({row['because']})",
    ),
}


def main(argv: Sequence[str]) -> dict[str, Any]:
    """Run papers with the parsed flags; return the summary."""
    flags.parse(FLAGS, argv)
    if FLAGS.list:
        sys.stdout.write("\n".join(map(paper_text, PAPERS.values())) + "\n")
        return {}
    if not FLAGS.run:
        raise BadInput("expected --list or --run, got neither; pass --run=all")
    names = flags.names(FLAGS.run, PAPERS, "run")
    path = folder.path(FLAGS.out, "papers")
    docs = Path(FLAGS.docs) if FLAGS.docs else path
    size = "quick" if FLAGS.quick and not FLAGS["size"].present else FLAGS.size
    PROGRESS.expect(papers_runs.seconds(PAPERS, names, size), SILENCE)
    if FLAGS.docs:
        papers_page.check_folders(docs)
    papers_page.read_records(docs, PAPERS)  # raises now if a record is broken
    records, commit = [], folder.commit()
    table = writers.table(COLUMNS, FLAGS.wide)
    last = partial(conclude, docs / papers_page.PAGE)
    with writing.run_writer(path, FLAGS, None, table, conclude=last) as writer:
        for name in PROGRESS.each(names):
            found = papers_runs.record(PAPERS[name], size, path / name, commit)
            records.append(found)
            figure = papers_page.picture(docs, found)
            papers_runs.figure(PAPERS[name], path / name, figure, MAX_FIGURE_BYTES)
            papers_page.write_record(docs, found)
            papers_page.write_page(docs, PAPERS)
            for finding in found["findings"]:
                writer.row({"paper": name} | finding)
        summary = summarize(records)
        writer.summary(summary)
    if names := papers_runs.failed(records):
        sys.stderr.write(f"papers.py: failed commands of {', '.join(names)}\n")
        sys.exit(1)
    return summary


def paper_text(paper: Paper) -> str:
    """Return the lines of a paper: name, times, citation and claims."""
    full, quick = paper.seconds
    time = f"{quick} s quick, {full} s in full" if paper.commands else "cannot be run"
    lines = [f"{paper.name}: {time}", f"    {paper.cited}"]
    for claim, _ in paper.claims:
        lines.append(f"    - {claim.text} (published: {claim.published})")
        if not paper.commands:
            lines.append(f"      {judge(claim).reason}")
    return "\n".join(lines)


def conclude(page: Path, run: Run) -> str:
    """Return the number of papers and claims by verdict, and the page of results."""
    summary = run.summary
    claims = summary["holds"] + summary["fails"] + summary["untested"]
    ran = summary["papers"] - summary["papers_failed"]
    return (
        f"{ran} of {summary['papers']} papers ran; {summary['holds']} of {claims} "
        f"claims hold, {summary['fails']} fail, {summary['untested']} are not "
        f"testable here. The page is {page}."
    )


def summarize(records: Sequence[Row]) -> dict[str, Any]:
    """Return the number of claims by verdict, and the verdict of every claim."""
    rows = {
        f"{record['name']}_{i}": row["verdict"]
        for record in records
        for i, row in enumerate(record["findings"], 1)
    }
    verdicts = {"holds": HOLDS, "fails": FAILS, "untested": UNTESTED}
    counts = {key: list(rows.values()).count(text) for key, text in verdicts.items()}
    seconds = sum(record["seconds"] for record in records)
    failed = len(papers_runs.failed(records))
    ran = {"papers": len(records), "papers_failed": failed, "seconds": seconds}
    return counts | ran | rows


if __name__ == "__main__":
    flags.run(main)
