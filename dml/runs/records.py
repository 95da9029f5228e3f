"""Read and write the file of a recorded run.

Line 1: dml record 1 <CRC-32 of all after line 1> <number of bytes after line 1>
Line 2: {"config": …, "lengths": number of events by rank and communicator}
After line 2: the events, each a little-endian uint64
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np

from dml.files import replacing
from dml.types import BadInput

FIRST_LINE = re.compile(rb"dml record 1 ([0-9a-f]{8}) (\d+)\n")
ADVICE = "record it again with --record, or pass another file"
RankEvents = Sequence[np.ndarray]  # events of a rank: one array per communicator


class Record(NamedTuple):
    """The events of a run, and its configuration."""

    path: Path
    config: Mapping[str, Any]
    ranks: Sequence[RankEvents]

    def check(self, config: Mapping[str, Any], size: int) -> None:
        """Raise BadInput if a replay's configuration differs from the record's."""
        names = list(dict.fromkeys([*config, *self.config]))
        replayed = {"ranks": size, **json_round_trip(config)}
        recorded = {"ranks": len(self.ranks), **self.config}
        for name in ["ranks", *names]:
            expected, got = (
                values.get(name, "no value") for values in (recorded, replayed)
            )
            if expected != got:
                raise BadInput(
                    f"expected {name}={expected} as recorded in {self.path}, got "
                    f"{name}={got}; replay with the recorded flags"
                )


def json_round_trip(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration after writing it to JSON and reading it back."""
    return json.loads(json.dumps(dict(config)))


def write(path: Path, config: Mapping[str, Any], ranks: Sequence[RankEvents]) -> None:
    """Write the events of all ranks; an existing file is replaced."""
    lengths = [[len(events) for events in rank] for rank in ranks]
    head = json.dumps({"config": dict(config), "lengths": lengths}) + "\n"
    event_bytes = [events.astype("<u8").tobytes() for rank in ranks for events in rank]
    body = head.encode() + b"".join(event_bytes)
    with replacing(path) as file:
        file.write(b"dml record 1 %08x %d\n" % (crc32(body), len(body)))
        file.write(body)


def read(path: Path) -> Record:
    """Read a record; raise BadInput for truncated, changed and other files."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BadInput(f"expected a record to read, got {error}; {ADVICE}") from error
    match = FIRST_LINE.match(data)
    if not match:
        raise BadInput(f"{path}: expected a record, got another kind of file; {ADVICE}")
    body = data[match.end() :]
    if len(body) != int(match[2]):
        raise BadInput(
            f"{path}: expected {int(match[2])} bytes after its first line, got "
            f"{len(body)}; {ADVICE}"
        )
    if crc32(body) != int(match[1], 16):
        raise BadInput(f"{path}: expected its checksum, got changed bytes; {ADVICE}")
    head, _, event_bytes = body.partition(b"\n")
    metadata = json.loads(head)
    events = np.frombuffer(event_bytes, "<u8").astype(np.uint64)
    ranks = []
    for lengths in metadata["lengths"]:
        *rank_events, events = np.split(events, np.cumsum(lengths))
        ranks.append(rank_events)
    return Record(path, metadata["config"], ranks)
