"""A communicator that also records every message it sends, for tests."""

from collections import Counter

import numpy as np

from dml.wire.collectives import all_gather
from dml.wire.comm import Metered


class Spy(Metered):
    """Records (operation, receiver in the outermost group, bytes) in `each`."""

    def __init__(self, comm, origin=None):
        super().__init__(comm, origin)
        self.each = origin.each if origin else []
        self.names = np.arange(comm.size)
        if origin:
            self.names = np.zeros(comm.size, np.int64)
            self.names[comm.rank] = origin.names[origin.rank]
            all_gather(comm, self.names)

    def count(self, operation, buffer, dest):
        super().count(operation, buffer, dest)
        self.each.append((operation, int(self.names[dest]), buffer.nbytes))

    @property
    def messages(self):
        return Counter((operation, dest) for operation, dest, _ in self.each)

    @property
    def bytes(self):
        found = Counter()
        for operation, dest, nbytes in self.each:
            found[operation, dest] += nbytes
        return found
