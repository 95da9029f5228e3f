"""Runs of single files on virtual ranks with counted words, and broken copies."""

import importlib.util
from pathlib import Path

from dml import sim
from dml.wire.comm import Metered


def ran(program, size, network=None, order=0):
    """Return program(comm) and the number of bytes sent, for every rank."""

    def counted(comm):
        comm = Metered(comm)
        return program(comm), comm.bytes_sent

    return sim.run(counted, size, network, order)


def broken(folder, module, *changes):
    """Import a copy of a single file; changes are pairs of texts (old, new)."""
    text = Path(module.__file__).read_text()
    for old, new in changes:
        assert text.count(old) == 1, f"expected one {old!r}, got {text.count(old)}"
        text = text.replace(old, new)
    file = folder / Path(module.__file__).name
    file.write_text(text)
    spec = importlib.util.spec_from_file_location(f"broken_{file.stem}", file)
    copy = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(copy)
    return copy
