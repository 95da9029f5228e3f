"""Write RESULTS.md from the records of papers, by the template papers.md.jinja."""

import json
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from dml.files import replacing
from dml.runs import results
from dml.types import BadInput

Record = dict[str, Any]
FOLDER, PAGE = "results", "RESULTS.md"
MAX_LOAD = 1.0  # mean cores busy with other programs; more: a record does not count
TEMPLATE = Path(__file__).with_name("papers.md.jinja")


def write_record(docs: Path, record: Record) -> None:
    """Write a paper's record to the folder from which the page is written."""
    with replacing(docs / FOLDER / f"{record['name']}.json") as file:
        file.write(f"{json.dumps(record, indent=2, ensure_ascii=False)}\n".encode())


def check_folders(docs: Path) -> None:
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


def read_records(docs: Path, names: Iterable[str]) -> list[Record]:
    """Return the records of papers, in the order of names."""
    paths = (docs / FOLDER / f"{name}.json" for name in names)
    return [results.read_object(path) for path in paths if path.exists()]


def write_page(docs: Path, names: Iterable[str]) -> None:
    """Write the page of all records."""
    records = read_records(docs, names)
    drawn = {record["name"] for record in records if picture(docs, record).exists()}
    with replacing(docs / PAGE) as file:
        file.write(page(records, drawn).encode())


def picture(docs: Path, record: Record) -> Path:
    return docs / FOLDER / f"{record['name']}.svg"


def page(records: Sequence[Record], drawn: Iterable[str] = ()) -> str:
    """Return the page of records; drawn are the names of papers with a figure."""
    run = [record for record in records if record["commands"]]
    machines = Counter(machine(record) for record in run)
    environment = Environment(
        trim_blocks=True, keep_trailing_newline=True, undefined=StrictUndefined
    )
    environment.filters["cell"] = cell
    return environment.from_string(TEMPLATE.read_text("utf-8")).render(
        papers=records,
        counts=Counter(
            row["verdict"] for record in records for row in record["findings"]
        ),
        machines=machines.most_common(),
        run=len(run),
        counted=sum(not doubts(record) for record in run),
        setting=setting,
        doubts=doubts,
        drawn=set(drawn),
    )


def machine(record: Record) -> str:
    """Return the machine and the versions of a record."""
    where = record["machine"]
    versions = ", ".join(
        f"{name} {version}" for name, version in record["versions"].items()
    )
    return (
        f"{where['cores']} cores of {where['processor']}, {where['memory_gb']} GB; "
        f"{versions or 'versions unknown'}"
    )


def setting(record: Record) -> str:
    """Return commit, date and size of a record."""
    commit = (record["commit"] or "none").split("-")[0]
    return f"commit {commit[:12]}, {record['date']}, size {record['size']}"


def doubts(record: Record) -> list[str]:
    """Return why a record does not count; empty if it does."""
    found = []
    if "-" in (record["commit"] or "-"):
        found.append("it is from a modified tree")
    if record["size"] != "full":
        found.append(f"its size is {record['size']}")
    load = record.get("load")
    if load is None:
        found.append("the load of its machine was not recorded")
    elif load > MAX_LOAD:
        found.append(f"its machine had a load of {load:g} beside it")
    return found


def cell(text: str) -> str:
    """Return a text as a cell of a table: one line, with | escaped."""
    return " ".join(text.split()).replace("|", "\\|")
