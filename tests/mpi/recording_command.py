"""A command with --record and --replay, whose rank WRONG notes what it did not."""

import os
import sys
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).parents[2] / "experiments"))
from lab import flags  # noqa: E402

from tests.wire.server.serving import serve  # noqa: E402

FLAGS = flags.define(
    *("record", "replay", "seed", "timeline", "watchdog"), *flags.VIRTUAL
)


def main(argv):
    flags.parse(FLAGS, argv)

    def program(comm):
        found = serve(comm, lambda: np.random.default_rng().uniform(1e-6, 1e-3))
        comm.platform.note(int(str(comm.rank) == os.environ.get("WRONG")))
        if comm.rank == 0:
            sys.stdout.write(found)
        return found

    return flags.ranks(program, FLAGS)


if __name__ == "__main__":
    flags.run(main)
