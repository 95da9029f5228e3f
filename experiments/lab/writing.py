"""Write the run folder of an experiment, and the exports that its flags name.

with writing.run_writer(
    path, FLAGS, comm, table, claims=CLAIMS, conclude=conclude
) as writer:
    writer.row(...)
    writer.summary(...)
"""

import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from lab import flags, resuming
from lab.claims import Claim, count_verdicts, print_verdicts
from lab.progress import PROGRESS
import numpy as np

from dml.runs import energy, exports, results, tracking, writers
from dml.runs import folder as run_folders
from dml.runs.results import Run
from dml.runs.writers import Row, Writer
from dml.types import BadInput, Comm
from dml.wire.collectives.broadcast import broadcast
from dml.wire.comm import first_of_all
from dml.wire.comm.metered import uncounted
from dml.wire.comm.surviving import with_survivors

Table = Callable[[Any, Mapping[str, list[Row]]], Iterable[Row]]
Make = Callable[[Path, bool], AbstractContextManager[Writer]]
EXPORTS: dict[str, Make] = {  # by flag
    "csv": lambda path, append: exports.table(path / "metrics.csv", append),
    "tensorboard": lambda path, append: exports.tensorboard(path),
}
MAX_MESSAGE = 4096  # bytes of a message of rank 0 to the other ranks


@contextmanager
def run_writer(
    path: Path,
    values: flags.FlagValues,
    comm: Comm | None,
    *others: AbstractContextManager[Writer],
    append: bool = False,
    claims: Sequence[Claim] = (),
    conclude: Callable[[Run], str] | None = None,
    ranks: int = 0,
) -> Iterator[Writer]:
    """Write rows and the summary on rank 0, and print a conclusion; collective.

    A row is written at once. The summary is written at the end, with the energy of all
    ranks and the verdicts of the claims.

    Args:
      path: Run folder.
      values: Flags, written to config.json.
      comm: Communicator; None for a command that runs in one process.
      *others: Further writers, such as a console table or a figure.
      append: Whether earlier rows are kept, as those of the run of --resume are.
      claims: Claims to judge by the rules of `lab.claims`.
      conclude: Run -> the answer to the question of the command, in a sentence; None:
        the loss at the end. The number of claims that hold follows.
      ranks: Number of ranks of the run if `comm` does not have all; 0: it has.
    """
    rank, size = (comm.rank, comm.size) if comm else (0, processes())
    if not comm and size > 1:
        raise BadInput(f"expected one process, got {size} ranks; start without mpirun")
    if comm and rank and comm.platform.virtual:  # rank 0 is in this process
        yield Writer(writers.ignore, writers.ignore)
        return
    if values.track:
        tracking.check_installed(values.track)
    append, chosen = append or resuming.resumes(values, path), flags.chosen(values)
    folder = run_folders.folder(path, chosen, append, ranks or size, values.overwrite)
    made = [make(path, append) for name, make in EXPORTS.items() if values[name].value]
    if values.track:
        made.append(tracking.tracker(values.track, path, chosen))
    summaries: list[Row] = []
    elastic = flags.survives_deaths(values)
    collective = partial(with_survivors, comm) if elastic else None
    with (
        energy.meter(comm, energy_terms(values), collective=collective) as meter,
        opened(comm, elastic, folder, *others, *made) as writer,
    ):

        def row(row: Row) -> None:
            PROGRESS.rows += 1
            writer.row(row)

        yield Writer(row, summaries.append)
        spent = meter.run_consumption()
        if summaries and rank == 0:
            run = results.read(path)._replace(summary=dict(summaries[-1]))
            verdicts = print_verdicts(claims, run)
            writer.summary(run.summary | verdicts | spent)
            virtual = comm is not None and comm.platform.virtual
            default = writers.training_sentence(run.summary, virtual, size)
            answer = conclude(run) if conclude else default
            lines = textwrap.fill(answer, writers.WIDTH)
            last = f"{count_verdicts(verdicts)} The results are in {path}.".lstrip()
            sys.stdout.write(f"{lines}\n{last}\n")
            sys.stdout.flush()


@contextmanager
def opened(
    comm: Comm | None, elastic: bool, *files: AbstractContextManager[Writer]
) -> Iterator[Writer]:
    """Open files on rank 0 and close them at the end; collective.

    All ranks raise the BadInput of rank 0, and wait until it has closed the files: a
    rank that ends before may end rank 0.

    Args:
      comm: Communicator; None for a command that runs in one process.
      elastic: Whether ranks may die, so that they do not wait.
      *files: Files.
    """
    rank, problem = comm.rank if comm else 0, ""
    with ExitStack() as stack:
        writer = None
        try:
            writer = stack.enter_context(writers.rank_0_writer(rank, *files))
        except BadInput as error:
            problem = str(error)
        if comm and not comm.platform.virtual:
            text = np.zeros(MAX_MESSAGE, np.uint8)
            encoded = problem.encode(errors="replace")[:MAX_MESSAGE]
            text[: len(encoded)] = np.frombuffer(encoded, np.uint8)
            broadcast(uncounted(comm), text)
            problem = text.tobytes().rstrip(b"\0").decode(errors="replace")
        if problem or not writer:
            raise BadInput(problem)
        yield writer
    if comm and not comm.platform.virtual and not elastic:
        first_of_all(comm, lambda: None)


def write_tables(
    writer: Writer, tables: Mapping[str, Table], arguments: Any
) -> dict[str, list[Row]]:
    """Write the rows of each table; return them by the name of the table.

    A table is a function of the arguments and of the rows of the tables before it.
    """
    written: dict[str, list[Row]] = {}
    for name in PROGRESS.each([*tables]):
        written[name] = []
        for row in tables[name](arguments, written):
            writer.row({"table": name} | row)
            written[name].append(row)
    return written


def flatten_rows(rows: Iterable[Row], name: str, *keys: str) -> dict[str, Any]:
    """Return values of rows for a summary.

    Args:
      rows: Rows.
      name: Template of a name in the summary, such as "{key}_{workers}".
      *keys: Keys of the values.
    """
    return {name.format(key=key, **row): row[key] for row in rows for key in keys}


def processes() -> int:
    """Return the number of processes that mpirun has started."""
    from dml.wire.comm.mpi import world

    return world().size


def energy_terms(values: flags.FlagValues) -> energy.Terms:
    """Return the terms of energy and cost by the flags."""
    return energy.Terms(*(values[name].value for name in energy.Terms._fields))
