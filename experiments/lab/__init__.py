"""Code that several commands share: flags, run folders, claims, timelines."""

import sys
from pathlib import Path

from dml import processes

if Path(sys.argv[0]).resolve().parent == Path(__file__).resolve().parents[1]:
    processes.open_missing_streams()
    processes.end_at_interrupt()  # until flags.run

if "--help" in sys.argv[1:]:
    from lab import stand_ins

    stand_ins.install()
