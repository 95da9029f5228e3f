"""Code that several commands share: flags, run folders, claims, timelines."""

import sys

from lab import stand_ins

if stand_ins.HELP.intersection(sys.argv[1:]):
    stand_ins.install()
