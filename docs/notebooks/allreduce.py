# %% markdown
# # All-reduce and its cost
#
# **Question.** Each of p ranks has a vector of n words, for example the gradient of
# its minibatch, and every rank needs the sum. How many words must a rank send, and
# how long does that take?
#
# ```
#   star, back          ring, twice around        butterfly
#   1  2  3             ┌─► 0 ──► 1 ─┐            0──1  2──3     round 0
#    ╲ │ ╱              │            ▼            0─────2        round 1
#     [0]               └── 3 ◄── 2 ◄┘               1─────3
# ```
#
# The ranks here are virtual: they run in this process, and a message of m bytes takes
# α + mβ seconds of virtual time. A rank sends one message and receives one message at
# a time. The same functions run on MPI processes.
#
# In an exercise, replace each `...`. Run the cell below it: it says what is wrong.

# %% install
# from pathlib import Path
#
# REPOSITORY = ""  # on Colab: "git+" and the URL of the repository
# try:
#     import dml
# except ModuleNotFoundError:
#     REPOSITORY = REPOSITORY or Path("../..").resolve().as_uri()
#     %pip install --quiet "dml-methods[figures] @ {REPOSITORY}"

# %%
import matplotlib.pyplot as plt
import numpy as np

from dml import Metered, sim
from dml.exercises import CORRECT, compare, verdict

ALPHA, BETA = 1e-6, 1e-9  # seconds per message, seconds per byte
NETWORK = sim.Uniform(alpha=ALPHA, beta=BETA, gamma=0)
WORD = 8  # bytes of a word of float64


def measure(allreduce, p, n):
    """Return the words that rank 0 sends, and the seconds of the slowest rank."""

    def program(comm):
        counted = Metered(comm)
        allreduce(counted, np.ones(n))
        return counted.bytes_sent // WORD, comm.Wtime()

    words, seconds = zip(*sim.run(program, p, NETWORK), strict=True)
    return words[0], max(seconds)


# %% markdown
# ## Star
#
# Rank 0 receives all vectors, adds them and sends the sum to all. It receives p - 1
# messages and sends p - 1 messages, one after another: its words and the seconds grow
# with p.


# %%
def star(comm, x):
    received = np.empty_like(x)
    if comm.rank > 0:
        comm.Send(x, 0)
        comm.Recv(x, 0)
        return
    for worker in range(1, comm.size):
        comm.Recv(received, worker)
        x += received
    for worker in range(1, comm.size):
        comm.Send(x, worker)


print(" p  words of rank 0  virtual µs")
for p in (2, 4, 8, 16):
    words, seconds = measure(star, p, n=4800)
    print(f"{p:2}{words:17}{1e6 * seconds:12.1f}")

# %% markdown
# ## Ring: the first time around
#
# A ring has no centre. The vector is cut into p chunks. In each round every rank
# sends one chunk to its right neighbour and adds the chunk that comes from its left
# neighbour: the *reduce-scatter*. With p = 3, where `a1` is chunk a of rank 1:
#
# ```
#           chunk a       chunk b       chunk c
# rank 0    a0 ──►                      + c2          round 0: rank r sends chunk r
# rank 1    + a0          b1 ──►                      round 1: the sum of round 0
# rank 2                  + b1          c2 ──►
#
# at the end: rank 0 has the sum of b, rank 1 of c, rank 2 of a: chunk r + 1 on rank r
# ```
#
# **Exercise 1.** Complete the reduce-scatter. `chunks` is the list of the p chunks,
# which are changed in place. The numbers of chunks and of ranks count modulo p.


# %% exercise
def reduce_scatter(comm, chunks):
    """Add up: at the end, rank r has the sum of chunk r + 1."""
    rank, p = comm.rank, comm.size
    right, left = (rank + 1) % p, (rank - 1) % p
    for i in range(...):  # rounds
        outgoing = chunks[...]  # sent to the right
        sums = chunks[...]  # to which the chunk from the left is added
        received = np.empty_like(sums)
        comm.Sendrecv(outgoing, right, recvbuf=received, source=left)
        sums += received


# %% check
def check_reduce_scatter():
    for p in (3, 2, 5):

        def program(comm, p=p):  # the digit of 10^r counts the terms of rank r
            chunks = [np.array([10**comm.rank]) for _ in range(p)]
            counted = Metered(comm)
            reduce_scatter(counted, chunks)
            sums = [f"{int(chunk[0]):0{p}}" for chunk in chunks]
            return counted.messages_sent, sums

        sent, rows = zip(*sim.run(program, p), strict=True)
        if sent[0] >= p:
            return f"{sent[0]} rounds with p = {p}: p - 1 rounds suffice."
        found = [
            (rows[r].index("1" * p) - r) % p for r in range(p) if "1" * p in rows[r]
        ]
        if found == [1] * p:
            continue
        if len(found) == p and len({*found}) == 1:
            return (
                f"Off by one: with p = {p}, rank 0 ends with the sum of chunk "
                f"{found[0]}, expected chunk 1. In round 0, rank r sends chunk r."
            )
        lacking = rows[0][1 % p][::-1].index("0")
        return (
            f"With p = {p}, the sum of chunk 1 on rank 0 lacks the values of rank "
            f"{lacking}. There are p - 1 rounds, and a rank sends the chunk "
            "to which it added in the round before."
        )
    return ""


exercise_1 = verdict(check_reduce_scatter, reduce_scatter)
print(exercise_1)


# %% solution
def reduce_scatter(comm, chunks):
    """Add up: at the end, rank r has the sum of chunk r + 1."""
    rank, p = comm.rank, comm.size
    right, left = (rank + 1) % p, (rank - 1) % p
    for i in range(p - 1):  # rounds
        outgoing = chunks[(rank - i) % p]  # sent to the right
        sums = chunks[(rank - i - 1) % p]  # to which the chunk from the left is added
        received = np.empty_like(sums)
        comm.Sendrecv(outgoing, right, recvbuf=received, source=left)
        sums += received


# %% markdown
# ## Ring: the second time around
#
# Now every chunk has its sum on one rank. The *all-gather* sends the sums around, so
# that all ranks have all of them. Nothing is added.
#
# **Exercise 2.** Complete the all-gather. Rank r starts with the sum of chunk r + 1.


# %% exercise
def all_gather(comm, chunks):
    """Fill all chunks; at the start, rank r has the sum of chunk r + 1."""
    rank, p = comm.rank, comm.size
    right, left = (rank + 1) % p, (rank - 1) % p
    for i in range(p - 1):
        outgoing = chunks[...]
        incoming = chunks[...]
        comm.Sendrecv(outgoing, right, recvbuf=incoming, source=left)


# %% check
def check_all_gather():
    for p in (2, 3, 5):

        def program(comm, p=p):
            chunks = [np.array([-1]) for _ in range(p)]
            chunks[(comm.rank + 1) % p][0] = (comm.rank + 1) % p
            all_gather(comm, chunks)
            return [int(chunk[0]) for chunk in chunks]

        rows = sim.run(program, p)
        if rows == [[*range(p)]] * p:
            continue
        if any(-1 in row for row in rows):
            return (
                f"With p = {p}, rank 0 ends with chunks {rows[0]}, where -1 is a "
                "chunk without a sum. In round 0, rank r sends chunk r + 1, the only "
                "one that it has; in each later round, the chunk that it just received."
            )
        return f"With p = {p}, the chunks of rank 0 are those numbered {rows[0]}."
    return ""


exercise_2 = verdict(check_all_gather, all_gather)
print(exercise_2)


# %% solution
def all_gather(comm, chunks):
    """Fill all chunks; at the start, rank r has the sum of chunk r + 1."""
    rank, p = comm.rank, comm.size
    right, left = (rank + 1) % p, (rank - 1) % p
    for i in range(p - 1):
        outgoing = chunks[(rank + 1 - i) % p]
        incoming = chunks[(rank - i) % p]
        comm.Sendrecv(outgoing, right, recvbuf=incoming, source=left)


# %% markdown
# Together they are the ring all-reduce. The butterfly, for p = 2^k ranks, is given
# for comparison: in round k, a rank exchanges its *whole* vector with the rank whose
# number differs in bit k.


# %%
def ring(comm, x):
    chunks = np.array_split(x, comm.size)  # views of x
    reduce_scatter(comm, chunks)
    all_gather(comm, chunks)


def butterfly(comm, x):
    received = np.empty_like(x)
    for k in range(comm.size.bit_length() - 1):
        partner = comm.rank ^ (1 << k)
        comm.Sendrecv(x, partner, recvbuf=received, source=partner)
        x += received


# %% markdown
# ## Seconds, predicted
#
# All ranks work at the same time in a round of the ring, so that the seconds are
# those of one rank: the number of its messages, times α + β · bytes of a message.
#
# **Exercise 3.** Predict the virtual seconds of the ring all-reduce of n words of 8
# bytes, if p divides n.


# %% exercise
def ring_seconds(p, n, alpha, beta):
    rounds = ...
    words = ...  # of a message
    return rounds * (alpha + 8 * words * beta)


# %% check
def check_ring_seconds():
    return compare(
        ring_seconds,
        lambda p, n, a, b: 2 * (p - 1) * (a + 8 * n / p * b),
        [(2, 16, ALPHA, BETA), (4, 4800, ALPHA, BETA), (16, 48000, ALPHA, BETA)],
        {
            "The division by p is missing: a message is one chunk of the vector.": (
                lambda p, n, a, b: 2 * (p - 1) * (a + 8 * n * b)
            ),
            "The factor 2 is missing: once around to add, once to gather.": (
                lambda p, n, a, b: (p - 1) * (a + 8 * n / p * b)
            ),
            "One round too many: p - 1 rounds add, and p - 1 rounds gather.": (
                lambda p, n, a, b: 2 * p * (a + 8 * n / p * b)
            ),
            "A chunk has n/p words; p - 1 is the number of rounds.": (
                lambda p, n, a, b: 2 * (p - 1) * (a + 8 * n / (p - 1) * b)
            ),
            "β is seconds per byte, and `return` has the 8 bytes of a word already.": (
                lambda p, n, a, b: 2 * (p - 1) * (a + 64 * n / p * b)
            ),
        },
    )


exercise_3 = verdict(check_ring_seconds, ring_seconds)
print(exercise_3)


# %% solution
def ring_seconds(p, n, alpha, beta):
    rounds = 2 * (p - 1)
    words = n / p  # of a message
    return rounds * (alpha + 8 * words * beta)


# %% markdown
# ## Short vectors and long ones
#
# The butterfly has lg p rounds (lg = log₂) of whole vectors: lg p · (α + 8nβ)
# seconds. For short vectors α counts, and the butterfly is faster; for long ones the
# words count.
#
# **Exercise 4.** At which n do the ring and the butterfly take equal seconds? Equate
# the two formulas and solve for n.


# %% exercise
def crossover(p, alpha, beta):
    lg = np.log2(p)
    return ...


# %% check
def check_crossover():
    def solved(p, a, b, rounds=2, share=2):
        lg = np.log2(p)
        return a * (rounds * (p - 1) - lg) / (8 * b * (lg - share * (p - 1) / p))

    return compare(
        crossover,
        solved,
        [(4, ALPHA, BETA), (16, ALPHA, BETA), (64, 3 * ALPHA, BETA)],
        {
            "β is seconds per byte: a word has 8 bytes.": (
                lambda p, a, b: 8 * solved(p, a, b)
            ),
            "The sign is wrong: a number of words is positive.": (
                lambda p, a, b: -solved(p, a, b)
            ),
            "The ring is passed twice: it has 2(p - 1) rounds.": (
                lambda p, a, b: solved(p, a, b, 1, 1)
            ),
            "A message of the ring has n/p words: all its rounds send 2n(p - 1)/p.": (
                lambda p, a, b: (
                    a
                    * (2 * (p - 1) - np.log2(p))
                    / (8 * b * (np.log2(p) - 2 * (p - 1)))
                )
            ),
        },
    )


exercise_4 = verdict(check_crossover, crossover)
print(exercise_4)


# %% solution
def crossover(p, alpha, beta):
    lg = np.log2(p)
    return alpha * (2 * (p - 1) - lg) / (8 * beta * (lg - 2 * (p - 1) / p))


# %% markdown
# ## Your numbers
#
# Left: words that rank 0 sends. Right: virtual seconds by length, on 16 ranks. Points
# are measured, lines are predicted. Your ring is drawn when exercises 1 and 2 are
# correct, your predictions when exercises 3 and 4 are.

# %% figure
counts, n = np.array([2, 4, 8, 16, 32]), 4800
lengths = 16 * np.array([1, 4, 16, 64, 256, 1024, 4096])
allreduces = {"star": star, "butterfly": butterfly}
if exercise_1 == exercise_2 == CORRECT:
    allreduces["your ring"] = ring
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
for name, allreduce in allreduces.items():
    left.plot(counts, [measure(allreduce, p, n)[0] for p in counts], "o", label=name)
    right.loglog(
        lengths, [measure(allreduce, 16, n)[1] for n in lengths], "o", label=name
    )
colours = ["C0", "C1", "C2"]
left.plot(counts, (counts - 1) * n, "C0", counts, np.log2(counts) * n, "C1", lw=1)
left.plot(counts, 2 * (counts - 1) / counts * n, "C2", lw=1, label="2(p - 1)n/p")
left.set(xlabel="ranks p", ylabel="words of rank 0", ylim=(0, 12 * n))
if exercise_3 == CORRECT:
    right.loglog(lengths, ring_seconds(16, lengths, ALPHA, BETA), "C2", lw=1)
if exercise_4 == CORRECT:
    right.axvline(
        crossover(16, ALPHA, BETA), color="grey", ls=":", label="your crossover"
    )
right.set(xlabel="words n", ylabel="virtual seconds, p = 16")
left.legend(), right.legend()
plt.show()

# %% markdown
# ## The sum in a training
#
# In data parallelism each rank has the gradient of its own minibatch, the mean over
# its examples. The update of a single process with all examples subtracts the rate
# times the gradient of *all* examples.
#
# **Exercise 5.** Complete the update, so that p ranks train as one process would. All
# ranks start with equal parameters w and have equally many examples.


# %% exercise
def update(comm, w, gradient, rate):
    """Return the parameters after a step; gradient: of this rank's examples."""
    total = gradient.copy()
    star(comm, total)  # the sum over ranks, now on all ranks
    return w - ...


# %% check
def check_update():
    p, w, rate = 4, np.ones(3), 0.5
    gradients = [np.array([1.0, 2.0, 3.0]) * (r + 1) for r in range(p)]
    rows = sim.run(lambda comm: update(comm, w, gradients[comm.rank], rate), p)
    right = w - rate * np.mean(gradients, axis=0)
    if any(row is None or np.shape(row) != (3,) for row in rows):
        return "Expected the parameters, a vector as long as w."
    if np.allclose(rows, right):
        return ""
    if np.allclose(rows, w - rate * np.sum(gradients, axis=0)):
        return (
            "The division by p is missing: the step is p times too long. With many "
            "ranks the training diverges."
        )
    if np.allclose(rows, w - np.mean(gradients, axis=0)):
        return "The rate is missing."
    if not np.allclose(rows, rows[0]):
        return (
            "The ranks have different parameters now. The step must be computed from "
            "the sum, which is equal on all ranks, not from this rank's gradient."
        )
    return f"Expected {right}, got {rows[0]}, for the gradients {gradients}."


exercise_5 = verdict(check_update, update)
print(exercise_5)


# %% solution
def update(comm, w, gradient, rate):
    """Return the parameters after a step; gradient: of this rank's examples."""
    total = gradient.copy()
    star(comm, total)  # the sum over ranks, now on all ranks
    return w - rate * total / comm.size


# %% markdown
# ## Where to read on
#
# - The five all-reduces of the lecture in one file:
#   `experiments/single/allreduce.py`.
# - The chapter `docs/allreduce.md`, with hierarchical and shared-memory algorithms.
# - `python -m dml.conformance FILE.py:NAME` checks an all-reduce of your own, on any
#   number of ranks, with any length and dtype.
