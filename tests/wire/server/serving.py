"""A server that receives from any source by every function of a communicator.

Its result depends on the order in which messages arrive.
"""

from hashlib import sha256

import numpy as np

from dml.types import ANY, Status


def by_receive(comm, pace, answer):
    into, status = buffer(), Status()
    comm.Recv(into, ANY, ANY, status)
    answer(into, status)


def by_probe(comm, pace, answer):
    into, status = buffer(), Status()
    comm.Probe(ANY, ANY, status)
    comm.Recv(into, status.Get_source(), status.Get_tag())
    answer(into, status)


def by_look(comm, pace, answer):
    into, status = buffer(), Status()
    while not comm.Iprobe(ANY, ANY, status):
        comm.platform.compute(pace() / 3)
    comm.Recv(into, status.Get_source(), ANY, status)
    answer(into, status)


def by_test(comm, pace, answer):
    into, status = buffer(), Status()
    request = comm.Irecv(into, ANY, ANY)
    while not request.Test(status):
        comm.platform.compute(pace() / 3)
    answer(into, status)


def by_computing_until_then(comm, pace, answer):
    into, status = buffer(), Status()
    request = comm.Irecv(into, ANY, ANY)
    while comm.platform.compute(pace() / 3, unless=request):
        pass
    request.Wait(status)
    answer(into, status)


def by_two_at_once(comm, pace, answer):
    words, status = [buffer(), buffer()], Status()
    requests = [comm.Irecv(into, ANY, ANY) for into in words]
    first = comm.Waitany(requests, status)
    answer(words[first], status)
    requests[1 - first].Wait(status)
    answer(words[1 - first], status)


WAYS = (by_receive, by_probe, by_look, by_test, by_computing_until_then)
WAYS += (by_two_at_once,)
MESSAGES = len(WAYS) + 1  # received when each way is used once


def buffer():
    return np.zeros(3, np.float32)


def serve(comm, pace, rounds=3):
    """Serve on rank 0; other ranks compute for pace() seconds per step.

    Return the hash of the result of this rank.
    """
    comm = comm.Dup()
    steps = rounds * MESSAGES
    call = worked if comm.rank else served
    return sha256(call(comm, steps, pace).tobytes()).hexdigest()


def served(comm, steps, pace):
    table, order = [np.ones(3, np.float32)], []

    def answer(grads, status):
        table[0] = table[0] * np.float32(0.7) + grads
        comm.platform.note(len(order))
        order.append(status.Get_source())
        comm.Send(table[0], order[-1], status.Get_tag())

    for _ in range(steps * (comm.size - 1) // MESSAGES):
        for way in WAYS:
            way(comm, pace, answer)
    return np.concatenate([table[0], np.array(order, np.float32)])


def worked(comm, steps, pace):
    grads, table = np.full(3, comm.rank, np.float32), buffer()
    for step in range(steps):
        comm.platform.compute(pace())
        comm.Send(grads, 0, step % 3)
        comm.Recv(table, 0, step % 3)
        grads = np.float32(comm.rank) - table / 3
    return table
