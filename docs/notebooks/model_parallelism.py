# %% markdown
# # Model parallelism and bubbles
#
# **Question.** A network does not fit on one device. Its layers can be cut in two
# ways: each rank has a slice of every layer (tensor parallelism), or each rank has
# some of the layers (pipeline parallelism). What must the ranks send, and when are
# they idle?
#
# ```
#   tensor: all ranks work on one block          pipeline: microbatches pass through
#
#        ┌─► U_0 ─► relu ─► D_0 ─┐               rank 0   F0 F1 F2  .  .  .  . B2 B1 B0
#   x ─f─┼─► U_1 ─► relu ─► D_1 ─┼─g─► + x       rank 1    . F0 F1 F2  .  . B2 B1 B0  .
#        └─► U_2 ─► relu ─► D_2 ─┘               rank 2    .  . F0 F1 F2 B2 B1 B0  .  .
# ```
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

from dml import ALLREDUCE, Metered, sim
from dml.exercises import CORRECT, compare, verdict


def all_reduce(comm, array):
    """Return the sum of the arrays of all ranks."""
    total = array.flatten()
    ALLREDUCE["ring"](comm, total)
    return total.reshape(array.shape)


# %% markdown
# ## Tensor parallelism: how to cut
#
# A block computes x + relu(x U) D. The matrix x has a row for each example. Rank i
# gets a slice of U and a slice of D, so that between the two products no rank needs
# numbers of another rank.
#
# **Exercise 1.** Cut U and D into p slices, and return those of a rank.
# `np.array_split(matrix, p, axis)` cuts by rows with axis 0, by columns with axis 1.


# %% exercise
def slices(up, down, rank, p):
    """Return the slices of U and D of a rank."""
    return np.array_split(up, p, axis=...)[rank], np.array_split(down, p, axis=...)[
        rank
    ]


# %% check
RNG = np.random.default_rng(0)
X, U, D = (RNG.standard_normal(shape) for shape in ((5, 4), (4, 6), (6, 4)))


def check_slices():
    for p in (2, 3):
        for rank in range(p):
            up, down = slices(U, D, rank, p)
            if up.shape != (4, 6 // p):
                return (
                    f"With p = {p}, a slice of U is {up.shape}. With some rows of U a "
                    "rank has a term of each hidden unit; relu needs their sum, an "
                    "all-reduce. With some columns it has complete hidden units."
                )
            if down.shape != (6 // p, 4):
                return (
                    f"With p = {p}, a slice of D is {down.shape}. A rank has some "
                    "hidden units, and multiplies them with the rows of D of these "
                    "hidden units."
                )
            if not np.array_equal(up, np.split(U, p, axis=1)[rank]):
                return "Each rank must have the slices of its own number."
    return ""


exercise_1 = verdict(check_slices, slices)
print(exercise_1)


# %% solution
def slices(up, down, rank, p):
    """Return the slices of U and D of a rank."""
    return np.array_split(up, p, axis=1)[rank], np.array_split(down, p, axis=0)[rank]


# %% markdown
# ## Tensor parallelism: forward
#
# h D is the sum over ranks of h_i D_i: one all-reduce, g in the picture. All ranks
# have the whole x.
#
# **Exercise 2.** Complete the block. `up` and `down` are the slices of this rank.


# %% exercise
def block(comm, up, down, x):
    """Return x + relu(x U) D, on all ranks."""
    hidden = np.maximum(x @ up, 0)
    return ...


# %% check
def parts(rank, p):
    return np.split(U, p, axis=1)[rank], np.split(D, p, axis=0)[rank]


def check_block():
    for p in (2, 3):
        rows = sim.run(lambda comm, p=p: block(comm, *parts(comm.rank, p), X), p)
        y = np.maximum(X @ U, 0) @ D
        if np.allclose(rows, X + y):
            continue
        if np.allclose(rows, p * X + y):
            return f"x is added {p} times, once by each rank: add it after the sum."
        if np.allclose(rows, (p * X + y) / p) or np.allclose(rows, X + y / p):
            return "The result is a sum over ranks, not a mean: no division by p."
        if np.allclose(rows, y):
            return "x is missing: the block returns x + relu(x U) D."
        if not np.allclose(rows, rows[0]):
            return (
                "The ranks have different results: each has only its own term of "
                "relu(x U) D. Add the terms with all_reduce."
            )
        return f"Expected {(X + y)[0, :2]} …, got {np.asarray(rows)[0, 0, :2]} …."
    return ""


exercise_2 = verdict(check_block, block)
print(exercise_2)


# %% solution
def block(comm, up, down, x):
    """Return x + relu(x U) D, on all ranks."""
    hidden = np.maximum(x @ up, 0)
    return x + all_reduce(comm, hidden @ down)


# %% markdown
# ## Tensor parallelism: backward
#
# `grad` is the gradient of the result of the block; it is equal on all ranks. The
# backward of the sum g is a copy. Forward, f copies x to all ranks. What is its
# backward?
#
# **Exercise 3.** Return the gradient of x.


# %% exercise
def gradient_of_x(comm, up, down, x, grad):
    """Return the gradient of x, on all ranks."""
    hidden = np.maximum(x @ up, 0)
    grad_hidden = (grad @ down.T) * (hidden > 0)
    return ...


# %% check
def check_gradient_of_x():
    grad = np.random.default_rng(1).standard_normal(X.shape)
    through = ((grad @ D.T) * (X @ U > 0)) @ U.T
    for p in (2, 3):

        def program(comm, p=p):
            return gradient_of_x(comm, *parts(comm.rank, p), X, grad)

        rows = sim.run(program, p)
        if np.allclose(rows, grad + through):
            continue
        if np.allclose(rows, through):
            return "x also goes around the matrices: the gradient of x + … has `grad`."
        if np.allclose(rows, p * grad + through):
            return (
                f"`grad` is added {p} times, once by each rank: add it after the sum."
            )
        if not np.allclose(rows, rows[0]):
            return (
                "The ranks have different gradients. All of them used x, each for its "
                "own hidden units: the gradient is the sum over ranks, an all-reduce."
            )
        expected = (grad + through)[0, :2]
        return f"Expected {expected} …, got {np.asarray(rows)[0, 0, :2]} …."
    return ""


exercise_3 = verdict(check_gradient_of_x, gradient_of_x)
print(exercise_3)


# %% solution
def gradient_of_x(comm, up, down, x, grad):
    """Return the gradient of x, on all ranks."""
    hidden = np.maximum(x @ up, 0)
    grad_hidden = (grad @ down.T) * (hidden > 0)
    return grad + all_reduce(comm, grad_hidden @ up.T)


# %% markdown
# **Exercise 4.** How many words does a rank send for a block, forward and backward?
# The minibatch has `examples` rows of `width` words, there are `hidden` hidden units
# and p ranks, and a ring all-reduce of n words sends 2(p - 1)/p · n.


# %% exercise
def tensor_words(examples, width, hidden, p):
    return ...


# %% check
def check_tensor_words():
    def right(e, w, h, p, passes=2):
        return passes * 2 * (p - 1) / p * e * w

    return compare(
        tensor_words,
        right,
        [(24, 8, 48, 2), (24, 8, 32, 4), (48, 16, 64, 3)],
        {
            "There are two all-reduces, one forward and one backward.": (
                lambda *at: right(*at, passes=1)
            ),
            "The hidden units are never sent: x and its gradient are.": (
                lambda e, w, h, p: right(e, h, w, p)
            ),
            "A rank sends 2(p - 1)/p words for each word, not 2(p - 1).": (
                lambda e, w, h, p: p * right(e, w, h, p)
            ),
            "The words of the examples are all needed: n = examples · width.": (
                lambda e, w, h, p: right(1, w, h, p)
            ),
            "A rank sends 2(p - 1)/p words for each word of an all-reduce, not 1.": (
                lambda e, w, h, p: 2 * e * w
            ),
        },
    )


exercise_4 = verdict(check_tensor_words, tensor_words)
print(exercise_4)


# %% solution
def tensor_words(examples, width, hidden, p):
    all_reduces = 2  # forward and backward
    return all_reduces * 2 * (p - 1) / p * examples * width


# %% markdown
# ## Pipelines and their bubble
#
# K ranks have a stage of the layers each. The minibatch is cut into M microbatches,
# which pass through the stages: F0, F1, … forward, B0, B1, … backward. In GPipe all
# forwards come first. A rank is idle at the beginning, at the turn and at the end:
# the *bubble*.
#
# Here a forward takes 1 virtual second and a backward 2; messages take nearly no
# time.

# %%
TAKES = {"F": 1, "B": 2}  # virtual seconds
FAST = sim.Uniform(alpha=1e-9, beta=0)


def gpipe(rank, ranks, count):
    """Return the order of the forwards and backwards of a rank."""
    forwards = [("F", m) for m in range(count)]
    return forwards + [("B", m) for m in reversed(range(count))]


def run(schedule, ranks, count):
    """Return a list of (work, microbatch, start) of each rank, and the seconds."""

    def program(comm):
        rows, message = [], np.zeros(1)
        for work, m in schedule(comm.rank, ranks, count):
            ahead = 1 if work == "F" else -1
            source, dest = comm.rank - ahead, comm.rank + ahead
            if 0 <= source < ranks:
                comm.Recv(message, source, m)
            rows.append((work, m, comm.Wtime()))
            comm.platform.compute(TAKES[work])
            if 0 <= dest < ranks:
                comm.Isend(message, dest, m)
        return rows, comm.Wtime()

    rows, seconds = zip(*sim.run(program, ranks, FAST), strict=True)
    return rows, max(seconds)


def idle(schedule, ranks, count):
    """Return the fraction of the time in which a rank is idle."""
    seconds = run(schedule, ranks, count)[1]
    return 1 - count * sum(TAKES.values()) / seconds


def draw(axes, schedule, ranks, count, title):
    for rank, row in enumerate(run(schedule, ranks, count)[0]):
        for work, m, start in row:
            colour = "C0" if work == "F" else "C1"
            axes.barh(rank, TAKES[work], left=start, color=colour, edgecolor="white")
            place = start + TAKES[work] / 2, rank
            axes.annotate(m, place, ha="center", va="center", color="white", size=7)
    axes.set(title=title, yticks=range(ranks), ylabel="rank", xlabel="virtual seconds")
    axes.invert_yaxis()


print(f"GPipe, 4 ranks, 8 microbatches: idle {idle(gpipe, 4, 8):.1%} of the time")

# %% markdown
# **Exercise 5.** Predict the fraction of the time in which a rank is idle, for K
# ranks and M microbatches. How many microbatches' time does the last rank wait until
# its first forward, and the first rank at its turn?


# %% exercise
def bubble(ranks, count):
    return ...


# %% check
def check_bubble():
    return compare(
        bubble,
        lambda k, m: (k - 1) / (m + k - 1),
        [(4, 8), (2, 3), (8, 8), (4, 1)],
        {
            "This is the idle time by the time of work, not by the whole time: divide "
            "by M + K - 1.": lambda k, m: (k - 1) / m,
            "Off by one: with K = 1 a rank is never idle.": lambda k, m: (
                k / (m + k - 1)
            ),
            "Off by one: a step takes the time of M + K - 1 microbatches.": (
                lambda k, m: (k - 1) / (m + k)
            ),
            "The factor 2 is in both times, forward and backward: it cancels.": (
                lambda k, m: 2 * (k - 1) / (m + k - 1)
            ),
            "This is the fraction of the time in which a rank works.": (
                lambda k, m: m / (m + k - 1)
            ),
            "This is the bubble of one microbatch: M microbatches follow each other.": (
                lambda k, m: (k - 1) / k
            ),
        },
    )


exercise_5 = verdict(check_bubble, bubble)
print(exercise_5)


# %% solution
def bubble(ranks, count):
    return (ranks - 1) / (count + ranks - 1)


# %% markdown
# ## 1F1B
#
# With GPipe a rank keeps the activations of all M microbatches until their backwards.
# 1F1B starts the backwards as early as possible, and has the same bubble:
#
# ```
#   rank 0   F0 F1 F2  .  . B0 F3 B1  . B2  . B3     warm-up: forwards only
#   rank 1    . F0 F1  . B0 F2 B1 F3 B2  . B3  .     steady: one forward, one backward
#   rank 2    .  . F0 B0 F1 B1 F2 B2 F3 B3  .  .     cool-down: backwards only
# ```
#
# Rank k has K - k microbatches in flight: forward done, backward not. The steady part
# of rank k starts with the forward of the last one of them.
#
# **Exercise 6.** Complete the schedule: the number of forwards of the warm-up, and
# the two pieces of work of each round of the steady part.


# %% exercise
def one_forward_one_backward(rank, ranks, count):
    """Return the order of the forwards and backwards of a rank."""
    ahead = min(..., count)
    order = [("F", m) for m in range(ahead)]
    for m in range(count - ahead):
        order += [..., ...]
    return order + [("B", m) for m in range(count - ahead, count)]


# %% check
def in_flight(order):
    """Return the most forwards without their backward."""
    return int(np.cumsum([1 if work == "F" else -1 for work, _ in order]).max())


def check_schedule():
    for ranks, count in ((3, 4), (4, 8), (2, 1)):
        orders = [one_forward_one_backward(k, ranks, count) for k in range(ranks)]
        work = sorted(gpipe(0, ranks, count))
        for k, order in enumerate(orders):
            for m in range(count):
                if sorted(order) == work and order.index(("F", m)) > order.index(
                    ("B", m)
                ):
                    return f"On rank {k} of {ranks}, B{m} comes before F{m}."
        for k, order in enumerate(orders):
            where = f"K = {ranks}, M = {count}, rank {k}"
            most, expected = in_flight(order), min(ranks - k, count)
            if sorted(order) != work:
                return (
                    f"{where}: each forward and backward must be there once: {order}."
                )
            if most != expected:
                off = "Off by one: " if abs(most - expected) == 1 else ""
                return (
                    f"{where}: {most} microbatches in flight, expected {expected}. "
                    f"{off}the steady part adds one to the warm-up."
                )
        spent, best = (
            run(one_forward_one_backward, ranks, count)[1],
            3 * (count + ranks - 1),
        )
        if not np.isclose(spent, best):
            return f"K = {ranks}, M = {count}: {spent:.0f} s, expected {best} s."
    return ""


exercise_6 = verdict(check_schedule, one_forward_one_backward)
print(exercise_6)


# %% solution
def one_forward_one_backward(rank, ranks, count):
    """Return the order of the forwards and backwards of a rank."""
    ahead = min(ranks - 1 - rank, count)
    order = [("F", m) for m in range(ahead)]
    for m in range(count - ahead):
        order += [("F", ahead + m), ("B", m)]
    return order + [("B", m) for m in range(count - ahead, count)]


# %% markdown
# ## Your numbers
#
# Above: the schedules, forwards blue and backwards orange. Below: the idle fraction
# on 4 ranks, measured and predicted, and the most microbatches in flight on rank 0.
# Yours are drawn when exercises 5 and 6 are correct.

# %% figure
schedules = {"GPipe": gpipe}
if exercise_6 == CORRECT:
    schedules["your 1F1B"] = one_forward_one_backward
figure, axes = plt.subplots(2, 2, figsize=(9, 5.2), layout="constrained")
axes[0, 1].set_visible(len(schedules) == 2)
counts = [1, 2, 4, 8, 16, 32]
for panel, marker, (name, schedule) in zip(
    axes[0], "ox", schedules.items(), strict=False
):
    draw(panel, schedule, 4, 6, name)
    fractions = [idle(schedule, 4, count) for count in counts]
    axes[1, 0].plot(counts, fractions, marker, label=name)
    most = [in_flight(schedule(0, 4, count)) for count in counts]
    axes[1, 1].loglog(counts, most, marker, ls="-", lw=1, label=name)
if exercise_5 == CORRECT:
    predicted = [bubble(4, count) for count in counts]
    axes[1, 0].plot(counts, predicted, "grey", lw=1, label="your prediction")
axes[1, 0].set(xlabel="microbatches M", ylabel="idle, 4 ranks", ylim=(0, 1))
axes[1, 1].set(xlabel="microbatches M", ylabel="in flight on rank 0")
axes[1, 0].legend(), axes[1, 1].legend()
plt.show()

# %% markdown
# Words of rank 0 for a block of tensor parallelism, counted and, when exercise 4 is
# correct, predicted: 24 examples of 8 words, 48 hidden units. A pipeline of K stages
# sends the 24 · 8 words of x once forward and once backward between two stages, for
# all blocks of a stage together.

# %% figure
print("p  words of rank 0  predicted")
for p in (2, 4, 8):

    def program(comm, p=p):
        counted = Metered(comm)
        for _ in range(2):  # forward and backward
            all_reduce(counted, np.ones((24, 8)))
        return counted.bytes_sent // 8

    predicted = f"{tensor_words(24, 8, 48, p):10.0f}" if exercise_4 == CORRECT else ""
    print(f"{p}{sim.run(program, p)[0]:17}{predicted}")

# %% markdown
# ## Where to read on
#
# - One file each: `experiments/single/tensor_parallel.py`,
#   `experiments/single/pipeline.py` and `experiments/single/zero.py`.
# - The chapter `docs/model_parallel.md`: interleaved stages, zero bubble, PipeDream,
#   experts.
# - `python experiments/pipeline.py --measured=` draws all schedules.
