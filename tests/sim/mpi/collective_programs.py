"""Random programs of mpi4py's calls, for real ranks and for virtual ones.

`play(MPI, comm, seed)` returns what a rank finds. All ranks draw the same calls; values
are integers, also in arrays of floats, so that no order of additions changes them.
"""

import random

import numpy as np

DTYPES = "bhilqBHILQfdFD"
OPS = ("SUM", "PROD", "MAX", "MIN", "BAND", "BOR", "BXOR", "LAND", "LOR", "LXOR")
KINDS = (
    *("bcast", "gather", "scatter", "allgather", "alltoall", "reduce", "scan"),
    *("vectors", "objects", "background", "persistent", "types", "split", "grid"),
    *("window", "ordered", "probe", "typed", "neighbors"),
)


class Player:
    def __init__(self, MPI, comm, seed):
        self.MPI, self.comm, self.notes = MPI, comm, []
        self.rng = random.Random(seed)
        self.rank, self.size = comm.Get_rank(), comm.Get_size()

    def values(self, count, dtype, bits=3):
        """Return this rank's values; every rank draws those of all."""
        drawn = [
            [self.rng.randrange(1 << bits) for _ in range(count)]
            for _ in range(self.size)
        ]
        return np.array(drawn).astype(dtype)

    def note(self, *found):
        self.notes.append(
            [one.tolist() if hasattr(one, "tolist") else one for one in found]
        )

    def draw(self):
        dtype = self.rng.choice(DTYPES)
        count = self.rng.choice([0, 1, 2, 7, 1000])
        return dtype, count, self.rng.randrange(self.size)

    def op(self, dtype):
        kind = np.dtype(dtype).kind
        names = OPS if kind in "iu" else OPS[:4] if kind == "f" else OPS[:2]
        return getattr(self.MPI, self.rng.choice(names))

    def bcast(self):
        dtype, count, root = self.draw()
        buf = self.values(count, dtype)[self.rank]
        self.comm.Bcast(buf, root)
        self.note("bcast", buf)

    def gather(self):
        dtype, count, root = self.draw()
        mine = self.values(count, dtype)[self.rank]
        into = np.zeros((self.size, count), dtype)
        self.comm.Gather(mine, into, root)
        self.note("gather", into)

    def scatter(self):
        dtype, count, root = self.draw()
        out = self.values(count, dtype)
        into = np.zeros(count, dtype)
        self.comm.Scatter(out if self.rank == root else None, into, root)
        self.note("scatter", into)

    def allgather(self):
        dtype, count, _ = self.draw()
        into = np.zeros((self.size, count), dtype)
        mine = self.values(count, dtype)[self.rank]
        if self.rng.random() < 0.5:
            into[self.rank] = mine
            self.comm.Allgather(self.MPI.IN_PLACE, into)
        else:
            self.comm.Allgather(mine, into)
        self.note("allgather", into)

    def alltoall(self):
        dtype, count, _ = self.draw()
        out = self.values(count * self.size, dtype)[self.rank]
        into = np.zeros(count * self.size, dtype)
        self.comm.Alltoall(out, into)
        self.note("alltoall", into)

    def reduce(self):
        dtype, count, root = self.draw()
        mine, op = self.values(count, dtype, 2)[self.rank], self.op(dtype)
        into = np.zeros(count, dtype)
        self.comm.Reduce(mine, into, op, root)
        self.note("reduce", into)
        self.comm.Allreduce(mine, into, op)
        self.note("allreduce", into)
        self.comm.Allreduce(self.MPI.IN_PLACE, mine, op)
        self.note("in place", mine)
        part = np.zeros(count, dtype)
        out = self.values(count * self.size, dtype, 2)[self.rank]
        self.comm.Reduce_scatter_block(out, part, op)
        self.note("reduce-scatter", part)

    def scan(self):
        dtype, count, _ = self.draw()
        mine, op = self.values(count, dtype, 2)[self.rank], self.op(dtype)
        into = np.zeros(count, dtype)
        self.comm.Scan(mine, into, op)
        self.note("scan", into)
        into[:] = 0
        self.comm.Exscan(mine, into, op)
        self.note("exscan", into if self.rank else None)

    def vectors(self):
        dtype, _, root = self.draw()
        counts = [self.rng.randrange(4) for _ in range(self.size)]
        gaps = np.cumsum([0] + [n + 1 for n in counts])[:-1].tolist()
        mine = self.values(4, dtype)[self.rank][: counts[self.rank]]
        room = sum(counts) + self.size
        into = np.zeros(room, dtype)
        self.comm.Gatherv(mine, [into, (counts, gaps)], root)
        self.note("gatherv", into)
        self.comm.Allgatherv(mine, [into, (counts, gaps)])
        self.note("allgatherv", into)
        back = np.zeros(counts[self.rank], dtype)
        self.comm.Scatterv([into, (counts, gaps)], back, root)
        self.note("scatterv", back)
        table = [
            [self.rng.randrange(3) for _ in range(self.size)] for _ in range(self.size)
        ]
        sent, got = table[self.rank], [row[self.rank] for row in table]
        out = self.values(2 * self.size, dtype)[self.rank][: sum(sent)]
        into = np.zeros(sum(got), dtype)
        self.comm.Alltoallv([out, sent], [into, got])
        self.note("alltoallv", into)

    def objects(self):
        root = self.rng.randrange(self.size)
        mine = {"rank": self.rank, "text": "x" * self.rng.randrange(50)}
        self.note("objects", self.comm.bcast(mine, root), self.comm.gather(mine, root))
        self.note(
            self.comm.allgather(self.rank), self.comm.alltoall([*range(self.size)])
        )
        self.note(self.comm.scatter([*range(self.size)], root))
        self.note(self.comm.allreduce([self.rank]), self.comm.exscan(str(self.rank)))
        self.note(self.comm.reduce((self.rank, 1), self.MPI.MAXLOC, root))

    def background(self):
        dtype, count, root = self.draw()
        mine, op = self.values(count, dtype, 2)[self.rank], self.op(dtype)
        first, second = np.zeros(count, dtype), mine.copy()
        requests = [
            self.comm.Iallreduce(mine, first, op),
            self.comm.Ibcast(second, root),
            self.comm.Ibarrier(),
        ]
        self.MPI.Request.Waitall(requests)
        self.note("background", first, second)

    def persistent(self):
        dtype, count, _ = self.draw()
        after, before = (self.rank + 1) % self.size, (self.rank - 1) % self.size
        out, into = np.zeros(count, dtype), np.zeros(count, dtype)
        requests = [
            self.comm.Send_init(out, after, 5),
            self.comm.Recv_init(into, before, 5),
        ]
        for _ in range(2):
            out[:] = self.values(count, dtype)[self.rank]
            self.MPI.Prequest.Startall(requests)
            self.MPI.Request.Waitall(requests)
            self.note("persistent", into)
        for request in requests:
            request.Free()

    def types(self):
        columns = self.rng.randrange(1, 5)
        kind = self.MPI.INT.Create_vector(3, columns, 6).Commit()
        out = self.values(18, "i")[self.rank]
        into = np.zeros(18, "i")
        after, before = (self.rank + 1) % self.size, (self.rank - 1) % self.size
        status = self.MPI.Status()
        self.comm.Sendrecv([out, 1, kind], after, 6, [into, 1, kind], before, 6, status)
        self.note(
            "vector", into, status.Get_count(self.MPI.INT), status.Get_count(kind)
        )
        self.comm.Bcast([into, 1, kind], 0)
        self.note("bcast", into, kind.Get_size(), kind.Get_extent())
        kind.Free()

    def split(self):
        colors = [self.rng.randrange(2) for _ in range(self.size)]
        part = self.comm.Split(colors[self.rank], -self.rank)
        self.note("split", part.rank, part.size, part.allgather(self.rank))
        group = self.comm.Get_group().Incl([*range(self.size)][::-1])
        turned = self.comm.Create(group)
        self.note("turned", turned.rank, turned.allreduce([self.rank]))
        part.Free()
        turned.Free()

    def grid(self):
        dims = self.MPI.Compute_dims(self.size, 2)
        periods = [self.rng.random() < 0.5, self.rng.random() < 0.5]
        cart = self.comm.Create_cart(dims, periods)
        null = self.MPI.PROC_NULL
        shifts = [[r if r != null else None for r in cart.Shift(k, 1)] for k in (0, 1)]
        self.note("grid", dims, cart.Get_coords(cart.rank), shifts)
        row = cart.Sub([False, True])
        self.note("row", row.allgather(cart.rank))
        row.Free()
        cart.Free()

    def window(self):
        dtype = self.rng.choice("ilqd")
        memory = np.zeros(4, dtype)
        win = self.MPI.Win.Create(memory, memory.itemsize, comm=self.comm)
        mine = self.values(2, dtype)[self.rank]
        target, got = (self.rank + 1) % self.size, np.zeros(2, dtype)
        win.Fence()
        win.Put(mine, target)
        win.Accumulate(mine[:1], 0, 3, self.MPI.SUM)
        win.Fence()
        win.Get(got, target)
        win.Fence()
        self.note("window", got, memory)
        self.comm.Barrier()  # memory is read before others change it
        ticket, one = np.zeros(1, dtype), np.ones(1, dtype)
        win.Lock(0)
        win.Fetch_and_op(one, ticket, 0, 2, self.MPI.SUM)
        win.Unlock(0)
        self.note("tickets", sorted(self.comm.allgather(float(ticket[0]))))
        win.Free()

    def ordered(self):
        def compose(inbuf, inoutbuf, datatype):  # of maps x -> a*x + b, modulo 97
            a = np.frombuffer(inbuf, "l").reshape(-1, 2)
            b = np.frombuffer(inoutbuf, "l").reshape(-1, 2)
            b[:] = np.stack([a[:, 0] * b[:, 0], a[:, 1] * b[:, 0] + b[:, 1]], 1) % 97

        op = self.MPI.Op.Create(compose, commute=False)
        pair = self.MPI.LONG.Create_contiguous(2).Commit()
        mine, into = self.values(6, "l")[self.rank], np.zeros(6, "l")
        self.comm.Allreduce([mine, 3, pair], [into, 3, pair], op)
        self.note("ordered", into)
        self.comm.Reduce([mine, 3, pair], [into, 3, pair], op, self.size - 1)
        self.note("ordered", into)
        self.comm.Scan([mine, 3, pair], [into, 3, pair], op)
        self.note("ordered", into)
        pair.Free()
        op.Free()

    def probe(self):
        count = self.rng.randrange(5)
        status = self.MPI.Status()
        request = self.comm.Isend(np.arange(count) + self.rank, 0, 7)
        if self.rank == 0:
            for source in range(self.size):
                message = self.comm.Mprobe(source, 7, status)
                into = np.zeros(status.Get_count(self.MPI.LONG), "l")
                message.Recv(into)
                self.note("probe", into, status.Get_source(), status.Get_tag())
        request.Wait()
        self.comm.Barrier()

    def typed(self):
        kinds = [
            self.rng.choice([self.MPI.INT, self.MPI.DOUBLE]) for _ in range(self.size)
        ]
        out = self.values(2 * self.size, "d")[self.rank]
        into = np.zeros(2 * self.size, "d")
        mine = [kinds[self.rank]] * self.size
        places = [16 * k for k in range(self.size)]
        ones = [1] * self.size
        self.comm.Alltoallw([out, (ones, places), kinds], [into, (ones, places), mine])
        self.note("typed", into)

    def neighbors(self):
        offsets = [self.rng.randrange(self.size) for _ in range(2)]
        sources = [(self.rank - k) % self.size for k in offsets]
        heads = [(self.rank + k) % self.size for k in offsets]
        graph = self.comm.Create_dist_graph_adjacent(sources, heads)
        out = self.values(2, "i")[self.rank]
        into = np.zeros(2, "i")
        graph.Neighbor_alltoall(out, into)
        self.note("neighbors", into, graph.neighbor_allgather(self.rank))
        graph.Free()


def play(MPI, comm, seed, length=10):
    """Return the notes of one rank."""
    player = Player(MPI, comm, f"{seed} {comm.Get_size()}")
    for _ in range(length):
        getattr(player, player.rng.choice(KINDS))()
    return player.notes
