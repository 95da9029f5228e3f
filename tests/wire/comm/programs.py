"""Random programs of all calls of a communicator, with equal results on every fabric.

A program is a list of steps, which all ranks play in order. A step is one message, one
exchange, one collective call or one refused call; each waits for earlier steps only, so
that no program ends in a deadlock. A receive from ANY has a tag of its own, or stands
between barriers.
"""

import random
from typing import NamedTuple

import numpy as np

from dml.types import ANY, PROC_NULL, TOO_LONG, UNDEFINED, WITHDRAWN, BadInput, Status
from dml.types.operations import OPERATIONS

CHARACTERS = "?bhilqBHILQefdgFD"
PLAIN = (*CHARACTERS, "S3", "V5", ">f4", "<u2", "M8[s]", "i4,f8")
FILLER = 0x5A
BIG = 70_000  # bytes: longer than the eager limits of MPI and of virtual ranks
SHORT = 1000  # bytes of messages that may be cut
KINDS = (
    *(["message"] * 8 + ["exchange"] * 3 + ["many"] * 2 + ["collective"] * 3),
    *("split", "dup", "free", "invalid", "invalid", "invalid", "null", "cancel"),
    *("local", "facts"),
)


RECEIVES = ("Recv", "Recv", "Wait", "Test", "Probe", "Iprobe", "Waitany")


class Group(NamedTuple):
    """A communicator as the program knows it: its number, and world ranks in order."""

    number: int
    ranks: tuple[int, ...]


def drawn(seed, size, length=12):
    """Return the steps of a program of `size` ranks."""
    rng = random.Random(f"{seed} {size}")
    groups, count, steps = [Group(0, tuple(range(size)))], 1, []
    while len(steps) < length:
        kind = rng.choice(KINDS)
        group = rng.choice(groups)
        step = {"kind": kind, "group": group, "tag": 100 + len(steps)}
        step["seed"] = rng.randrange(1 << 30)
        if kind == "split":
            colors = [rng.choice([0, 1, 1, UNDEFINED]) for _ in group.ranks]
            keys = [rng.randrange(-2, 3) for _ in group.ranks]
            step |= {"colors": colors, "keys": keys, "number": count}
            for color in {*colors} - {UNDEFINED}:
                members = [k for k, one in enumerate(colors) if one == color]
                members.sort(key=lambda k: (keys[k], k))  # noqa: B023
                groups.append(Group(count, tuple(group.ranks[k] for k in members)))
            count += 1
        elif kind == "dup":
            step["number"] = count
            groups.append(Group(count, group.ranks))
            count += 1
        elif kind == "free":
            if not group.number:
                continue
            groups.remove(group)
        steps.append(step)
    return steps


def buffer(rng, nbytes=None, fill=None):
    """Return a contiguous array of random dtype, shape and order."""
    dtype = np.dtype(rng.choice(PLAIN))
    if nbytes is None:
        count = rng.choice([0, 1, 2, 3, 6, 12, 30, BIG // dtype.itemsize])
    else:
        dtype = np.dtype(
            rng.choice([c for c in PLAIN if not nbytes % np.dtype(c).itemsize])
        )
        count = nbytes // dtype.itemsize
    data = np.full(count * dtype.itemsize, FILLER, np.uint8)
    if fill is None:
        data[:] = np.frombuffer(rng.randbytes(len(data)), np.uint8)
    vector = data.view(dtype)
    shapes = [(count,)] * 3 + [(1, count), (count, 1), (1, count, 1)]
    shapes += [(count // n, n) for n in (2, 3) if count and not count % n] * 2
    shapes += [()] if count == 1 else []
    return vector.reshape(rng.choice(shapes), order=rng.choice("CF"))


def memory(array):
    """Return the bytes of a buffer in the order of memory."""
    if isinstance(array, bytes | bytearray):
        return bytes(array)
    return array.ravel("K").view(np.uint8).tobytes() if array.size else b""


def forms(array, rng, mpi):
    """Return a buffer as one of the objects that mpi4py accepts."""
    form = rng.choice(["array"] * 6 + ["byte", "count", "bytes", "none"])
    if form == "none" and not array.nbytes:
        return None
    if form == "byte" and mpi:
        return [array, mpi.BYTE]
    if form == "count" and mpi:
        return [array, array.nbytes, mpi.BYTE]
    return array


def new_status(rng, mpi):
    return mpi.Status() if mpi and rng.random() < 0.5 else Status()


def seen(status):
    """Return the fields of a status under dml's names."""
    found = status.Get_source(), status.Get_tag(), status.Get_count()
    if isinstance(status, Status):
        return found
    source, tag, count = found
    # of mpi4py, whose constants are negative, as are those of dml
    source, tag = PROC_NULL if source < 0 else source, ANY if tag < 0 else tag
    return source, tag, WITHDRAWN if status.Is_cancelled() else count


class Player:
    """One rank of a program; `notes` is all that it finds."""

    def __init__(self, comm, steps, mpi):
        self.comms, self.notes, self.mpi = {0: comm}, [], mpi
        self.me = comm.rank
        for number, step in enumerate(steps):
            if self.me in step["group"].ranks:
                rng = random.Random(step["seed"])
                comm = self.comms[step["group"].number]
                self.number = number
                getattr(self, step["kind"])(comm, step, rng)

    def note(self, *found):
        self.notes.append((self.number, *found))

    def attempt(self, call, *arguments):
        """Return the result of a call; note its refusal."""
        try:
            return call(*arguments)
        except BadInput as error:
            self.note("refused", str(error))

    # One message.

    def message(self, comm, step, rng):
        size, tag = comm.size, step["tag"]
        source, dest = rng.randrange(size), rng.randrange(size)
        data = buffer(rng)
        room = data.nbytes + rng.choice([0, 0, 0, 8, 3 * data.itemsize, -1])
        # Open MPI writes beyond a buffer if a message without a copy is too long
        room = max(room, data.nbytes) if data.nbytes > SHORT else max(room, 0)
        into = buffer(rng, room, FILLER)
        named = (rng.choice([source, source, ANY]), rng.choice([tag, tag, ANY]))
        alone = named == (ANY, ANY)
        how = rng.choice(["Send", "Isend", "Isend"]) if source != dest else "Isend"
        take = rng.choice(
            ["Recv", "Recv", "Wait", "Test", "Probe", "Iprobe", "Waitany"]
        )
        told = rng.random() < 0.7
        sent, got = forms(data, rng, self.mpi), forms(into, rng, self.mpi)
        if alone:
            comm.Barrier()
        request = None
        if comm.rank == source:
            request = getattr(comm, how)(sent, dest, tag)
        if comm.rank == dest:
            self.take(comm, take, got, into, named, told, rng)
        if request is not None:
            request.Wait()
        if alone:
            comm.Barrier()

    def take(self, comm, take, got, into, named, told, rng):
        """Receive a message in one of the ways, and note it."""
        status = new_status(rng, self.mpi) if told else None
        if take in ("Probe", "Iprobe"):
            probed = new_status(rng, self.mpi)
            if take == "Probe":
                comm.Probe(*named, probed)
            while take == "Iprobe" and not comm.Iprobe(*named, probed):
                comm.platform.compute(1e-6)
            self.note("probed", *seen(probed))
            named = probed.Get_source(), probed.Get_tag()
        if take in ("Recv", "Probe", "Iprobe"):
            self.attempt(comm.Recv, got, *named, status)
        else:
            request = comm.Irecv(got, *named)
            self.attempt(self.finish, comm, take, request, status)
        self.received(status, into)

    def finish(self, comm, take, request, status):
        if take == "Wait":
            request.Wait(status)
        elif take == "Waitany":
            self.note("index", comm.Waitany([request], status))
            self.note("index", comm.Waitany([]))
        else:
            while not request.Test(status):
                comm.platform.compute(1e-6)

    def received(self, status, into):
        """Note a status and a buffer; MPI does not define the content after a cut."""
        if self.notes and self.notes[-1][:2] == (self.number, "refused"):
            return
        if status is not None:
            self.note("status", *seen(status))
            if status.Get_count() == TOO_LONG:
                return
        self.note("bytes", memory(into))

    # Several messages.

    def exchange(self, comm, step, rng):
        shift, periodic = rng.randrange(1, comm.size + 1), rng.random() < 0.5
        dest, source = comm.rank + shift, comm.rank - shift
        if periodic:
            dest, source = dest % comm.size, source % comm.size
        dest = dest if dest < comm.size else PROC_NULL
        source = source if source >= 0 else PROC_NULL
        if rng.random() < 0.2 and source >= 0:
            source = ANY
        arrays = [buffer(rng) for _ in range(comm.size)]
        longest = max(array.nbytes for array in arrays)
        # Open MPI cuts a message to the same rank without an error
        cut = rng.random() < 0.2 and longest <= SHORT and shift < comm.size
        into = np.full(longest // 2 if cut else longest, FILLER, np.uint8)
        status = new_status(rng, self.mpi) if rng.random() < 0.7 else None
        tag = step["tag"]
        sent = forms(arrays[comm.rank], rng, self.mpi)
        self.attempt(comm.Sendrecv, sent, dest, tag, into, source, tag, status)
        self.received(status, into)

    def many(self, comm, step, rng):
        """All ranks send to one, which receives in another order."""
        root, call = rng.randrange(comm.size), rng.choice(["Waitall", "Waitany"])
        arrays = [buffer(rng) for _ in range(2 * comm.size)]
        order = rng.sample(range(len(arrays)), len(arrays))
        tags = [step["tag"] + 1000 * k for k in range(len(arrays))]
        requests, places = [], []
        if comm.rank == root:
            places = [np.full(arrays[k].nbytes, FILLER, np.uint8) for k in order]
            requests = [
                comm.Irecv(place, k // 2, tags[k])
                for k, place in zip(order, places, strict=True)
            ]
        mine = (2 * comm.rank, 2 * comm.rank + 1)
        sends = [comm.Isend(arrays[k], root, tags[k]) for k in mine]
        if call == "Waitall":
            comm.Waitall(requests)
        else:
            found, status = [], new_status(rng, self.mpi)
            for _ in requests:
                k = comm.Waitany(requests, status)
                found.append((k, *seen(status)))
            self.note("any", sorted(found), comm.Waitany(requests))
        for request in sends:
            request.Wait()
        self.note("many", *map(memory, places))

    def null(self, comm, step, rng):
        null = self.mpi.PROC_NULL if self.mpi and rng.random() < 0.3 else PROC_NULL
        status, into = new_status(rng, self.mpi), buffer(rng, 24, FILLER)
        comm.Send(buffer(rng), null, 3)
        comm.Isend(buffer(rng), null, 3).Wait()
        comm.Recv(into, null, 3, status)
        self.note("null", *seen(status), memory(into))
        comm.Probe(null, ANY, status)
        self.note(comm.Iprobe(null, ANY, status), *seen(status))
        self.note(comm.Irecv(into, null).Wait(status), *seen(status))
        comm.Sendrecv(into, null, 1, into.copy(), null, 2, status)
        self.note("null", *seen(status))

    def cancel(self, comm, step, rng):
        request, status = (
            comm.Irecv(buffer(rng, 24), rng.choice([0, ANY]), 99),
            new_status(rng, self.mpi),
        )
        self.note(request.Test())
        request.Cancel()
        request.Wait(status)
        self.note("cancelled", seen(status)[2] == WITHDRAWN)

    # Collective and local calls.

    def collective(self, comm, step, rng):
        name = rng.choice([*OPERATIONS, "hypot", "MAXLOC"])
        dtype = np.dtype(rng.choice([*CHARACTERS, ">f4", "S3", "O"]))
        op = OPERATIONS[name][0] if name in OPERATIONS else np.hypot
        if self.mpi and name != "hypot" and rng.random() < 0.5:
            op = getattr(self.mpi, name)
        shape = rng.choice([(6,), (2, 3)])
        numbers = [rng.randrange(3) for _ in range(6 * comm.size)]
        arrays = np.array(numbers).astype(dtype).reshape(comm.size, *shape)
        if dtype.kind == "f" and rng.random() < 0.5:
            arrays[rng.randrange(comm.size)][..., 0] = np.nan
        own = arrays[comm.rank].copy(order=rng.choice("CF"))
        send = rng.choice(["send", "place", "mpi", "length", "dtype", "same"])
        into = own
        sendbuf = None
        if send == "mpi" and self.mpi:
            sendbuf = self.mpi.IN_PLACE
        elif send in ("send", "length", "dtype", "same"):
            sendbuf, into = own, np.zeros(6, dtype)
            into = np.zeros(7, dtype) if send == "length" else into
            into = np.zeros(6, np.uint64) if send == "dtype" else into
            into = own if send == "same" else into
        self.attempt(comm.Allreduce, sendbuf, into, op)
        found = into.ravel("K").tolist()
        self.note("sum", [None if each != each else each for each in found])
        if rng.random() < 0.5:
            comm.Barrier()

    def split(self, comm, step, rng):
        color, key = step["colors"][comm.rank], step["keys"][comm.rank]
        made = comm.Split(color, key)
        self.note("split", bool(made), (made.rank, made.size) if made else None)
        if made:
            self.comms[step["number"]] = made

    def dup(self, comm, step, rng):
        comm.Split_type().Free()  # its size depends on the network
        made = comm.Dup()
        self.note("dup", made.Get_rank(), made.Get_size())
        self.comms[step["number"]] = made

    def free(self, comm, step, rng):
        comm.Barrier()
        comm.Free()
        try:
            comm.Send(np.zeros(1), 0, 0)
        except BadInput as error:
            self.note("freed", "one that was freed" in str(error))
        del self.comms[step["group"].number]

    def local(self, comm, step, rng):
        name = rng.choice(sorted(OPERATIONS))
        op = getattr(self.mpi, name) if self.mpi else OPERATIONS[name][0]
        dtype = rng.choice("bifF?O")
        term = np.array([3, 0, 1]).astype(dtype)
        total = np.array([1, 2, 0, 1][: rng.choice([3, 3, 4])]).astype(dtype)
        out = rng.choice([None, np.zeros(len(total), dtype)])
        self.attempt(comm.Reduce_local, term, total, op, out)
        self.note("local", total.tolist(), None if out is None else out.tolist())

    def facts(self, comm, step, rng):
        self.note(comm.rank, comm.size, comm.Get_rank(), comm.Get_size())
        self.note(comm.Waitany([]), comm.Waitall([]))

    # Refused calls.

    def invalid(self, comm, step, rng):
        """Make one call with one invalid argument; nothing is sent."""
        good = np.zeros(4)
        buffers = [
            np.zeros(8)[::2],
            np.zeros(4)[::-1],
            np.zeros((4, 4))[:2, :2],
            np.array([1, None], object),
            "text",
            3,
            [good, "MPI.INT"],
            [good],
        ]
        if self.mpi:
            buffers += [[good, self.mpi.INT], [good, 5, self.mpi.DOUBLE]]
        unwriteable = [np.broadcast_to(0.0, (1,)), b"bytes"]
        ranks = [comm.size, 99, -7, None, 1.5, "0", -(2**40)]
        tags = [-5, 2**31, None, 1.5, 2**40]
        what = rng.choice(["buffer", "rank", "tag", "color", "kind"])
        send = rng.random() < 0.5
        buf = good
        peer, tag = comm.rank, step["tag"]
        if what == "buffer":
            buf = rng.choice(buffers if send else buffers + unwriteable)
        elif what == "rank":
            peer = rng.choice(ranks)
        elif what == "tag":
            tag = rng.choice(tags + [ANY] * send)
        elif what == "color":
            return self.attempt(comm.Split, rng.choice([-5, None, 1.5, 2**40]))
        else:
            return self.attempt(comm.Split_type, 77)
        calls = ["Send", "Isend", "Sendrecv"] if send else ["Recv", "Irecv", "Sendrecv"]
        call = rng.choice(calls + ["Probe", "Iprobe"] * (not send and what != "buffer"))
        if call in ("Probe", "Iprobe"):
            arguments = [peer, tag]
        elif call != "Sendrecv":
            arguments = [buf, peer, tag]
        elif send:
            arguments = [buf, peer, tag, np.zeros(4), PROC_NULL, 0]
        else:
            arguments = [np.zeros(4), PROC_NULL, 0, buf, peer, tag]
        self.attempt(getattr(comm, call), *arguments)
