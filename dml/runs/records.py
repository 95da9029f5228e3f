"""The file of a recorded run; a replay needs the flags of the record.

dml record 1 <crc of the rest> <bytes of the rest>
{"config": …, "lengths": number of events by rank and communicator}
events: little-endian uint64
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np

from dml.evaluation.vectors import replacing
from dml.types import BadInput

FIRST = re.compile(rb"dml record 1 ([0-9a-f]{8}) (\d+)\n")
AGAIN = "record it again with --record, or pass another file"
Words = Sequence[np.ndarray]  # events of a rank: one array per communicator


class Record(NamedTuple):
    """The events of a run, and its configuration."""

    path: Path
    config: Mapping[str, Any]
    ranks: Sequence[Words]

    def check(self, config: Mapping[str, Any], size: int) -> None:
        """Raise BadInput if a replay's configuration differs from the record's."""
        names = list(dict.fromkeys([*config, *self.config]))
        replayed = {"ranks": size, **plain(config)}
        recorded = {"ranks": len(self.ranks), **self.config}
        for name in ["ranks", *names]:
            expected, got = (
                values.get(name, "no value") for values in (recorded, replayed)
            )
            if expected != got:
                raise BadInput(
                    f"expected {name}={expected} as recorded in {self.path}, got "
                    f"{name}={got}; replay with the flags of the record"
                )


def plain(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration after writing it to JSON and reading it back."""
    return json.loads(json.dumps(dict(config)))


def write(path: Path, config: Mapping[str, Any], ranks: Sequence[Words]) -> None:
    """Write the events of all ranks; an existing file is replaced."""
    lengths = [[len(words) for words in rank] for rank in ranks]
    head = json.dumps({"config": dict(config), "lengths": lengths}) + "\n"
    events = [words.astype("<u8").tobytes() for rank in ranks for words in rank]
    rest = head.encode() + b"".join(events)
    with replacing(path) as file:
        file.write(b"dml record 1 %08x %d\n" % (crc32(rest), len(rest)))
        file.write(rest)


def read(path: Path) -> Record:
    """Read a record; raise BadInput for truncated, changed and other files."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BadInput(f"expected a record to read, got {error}; {AGAIN}") from error
    first = FIRST.match(data)
    if not first:
        raise BadInput(f"{path}: expected a record, got another kind of file; {AGAIN}")
    rest = data[first.end() :]
    if len(rest) != int(first[2]):
        raise BadInput(
            f"{path}: expected {int(first[2])} bytes after its first line, got "
            f"{len(rest)}; {AGAIN}"
        )
    if crc32(rest) != int(first[1], 16):
        raise BadInput(f"{path}: expected its checksum, got changed bytes; {AGAIN}")
    head, _, events = rest.partition(b"\n")
    metadata = json.loads(head)
    words, ranks = np.frombuffer(events, "<u8").astype(np.uint64), []
    for lengths in metadata["lengths"]:
        *own, words = np.split(words, np.cumsum(lengths))
        ranks.append(own)
    return Record(path, metadata["config"], ranks)
