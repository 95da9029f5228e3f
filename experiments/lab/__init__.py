"""Code that several commands share: flags, run folders, claims, timelines."""

import sys

if "--help" in sys.argv[1:]:
    from lab import stand_ins

    stand_ins.install()
