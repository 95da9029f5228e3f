# %% markdown
# # Inexact means: compression, gossip, attackers
#
# **Question.** Training needs the mean of the gradients of all ranks. What happens if
# the mean is only nearly right: because ranks send a part of their gradients, because
# they send to their neighbours only, or because some ranks lie?
#
# ```
#   compression               gossip                        attackers
#   0.9 -0.1 0.0 -0.5         ┌─► 0 ◄──► 1 ◄──► 2 ◄─┐       · ·
#    ▼            ▼           │                     │      · ○ ·          ×
#   0.9  .   .   -0.5         └──► 5 ◄──► 4 ◄──► 3 ◄┘       · ·          ×
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

N = 40  # words of a gradient


def problem(rank):
    """Return A and b: the gradient of a rank's linear regression is A x - b."""
    draws = np.random.default_rng(rank)
    solution, inputs = 1 + draws.standard_normal(N), draws.standard_normal((80, N))
    return inputs.T @ inputs / 80, inputs.T @ (inputs @ solution) / 80


# %% markdown
# ## Compression: the largest values
#
# A rank sends the k values with the largest absolute value, and where they stand: 2k
# words instead of n.
#
# **Exercise 1.** Keep the k values with the largest absolute value; the others are 0.
# `np.argsort(v)` returns the indices that sort v, the smallest value first.


# %% exercise
def top_k(x, k):
    kept = np.zeros_like(x)
    largest = np.argsort(...)[...]
    kept[largest] = x[largest]
    return kept


# %% check
def check_top_k():
    for x in (np.array([0.9, -0.1, 0.0, -0.5]), np.array([-3.0, 1.0, 2.0, -1.5])):
        for k in (1, 2, 3):
            got, order = top_k(x, k), np.argsort(np.abs(x))
            right = np.where(np.isin(np.arange(4), order[-k:]), x, 0)
            if np.array_equal(got, right):
                continue
            if np.count_nonzero(got) > k:
                return f"{np.count_nonzero(got)} values of {x} are kept, expected {k}."
            if np.array_equal(got, np.where(np.isin(np.arange(4), order[:k]), x, 0)):
                return "The smallest values are kept: argsort starts with the smallest."
            if np.array_equal(got, np.where(x >= np.sort(x)[-k], x, 0)):
                return (
                    "Negative values count as much as positive ones: sort by the "
                    "absolute value, and keep the sign."
                )
            return f"Expected {right} of {x} with k = {k}, got {got}."
    return ""


exercise_1 = verdict(check_top_k, top_k)
print(exercise_1)


# %% solution
def top_k(x, k):
    kept = np.zeros_like(x)
    largest = np.argsort(np.abs(x))[-k:]
    kept[largest] = x[largest]
    return kept


# %% markdown
# ## Compression: error feedback
#
# What is not sent is not lost: the rank keeps it as its `error`, and adds it to its
# next gradient. Over all steps, all that was sent and the error then add up to all
# gradients.
#
# **Exercise 2.** Complete error feedback for any `compress`, a function of a vector.


# %% exercise
def with_feedback(compress, gradient, error):
    """Return what is sent, and the error of the next step."""
    corrected = ...
    sent = compress(corrected)
    return sent, ...


# %% check
def check_feedback():
    gradients = np.random.default_rng(0).standard_normal((4, 6))
    kept = lambda x: np.where(np.abs(x) >= np.sort(np.abs(x))[-2], x, 0)  # noqa: E731
    sent, error = with_feedback(kept, gradients[0], np.zeros(6))
    if not np.allclose(sent, kept(gradients[0])):
        return "In the first step, the compressed gradient is sent: the error is 0."
    if np.allclose(error, sent):
        return "The error is what was not sent."
    if np.allclose(error, sent - gradients[0]):
        return "The sign is wrong: the error is what was not sent, not its negative."
    if not np.allclose(error, gradients[0] - sent):
        return "The error after the first step is the gradient minus what was sent."
    again, later = with_feedback(kept, gradients[1], error)
    if np.allclose(again, kept(gradients[1])):
        return (
            "The error is never sent: there is no feedback. Add it before compressing."
        )
    if np.allclose(later, gradients[1] - again):
        return (
            "The error of the steps before is lost: subtract what was sent from the "
            "corrected gradient, not from the gradient."
        )
    if np.allclose(later, error + gradients[1] + error - again):
        return "The error is counted twice: the corrected gradient has it already."
    if np.allclose(sent + again + later, gradients[0] + gradients[1]):
        return ""
    return "What was sent and the error do not add up to all gradients."


exercise_2 = verdict(check_feedback, with_feedback)
print(exercise_2)


# %% solution
def with_feedback(compress, gradient, error):
    """Return what is sent, and the error of the next step."""
    corrected = gradient + error
    sent = compress(corrected)
    return sent, corrected - sent


# %% markdown
# ## Compression: words
#
# Different ranks keep values at different places. Therefore the k values and their k
# indices are not added on the way: each rank gets those of all others, by an
# all-gather around a ring. In each of its p - 1 rounds a rank sends the 2k words of
# one rank. A ring all-reduce of the whole gradient sends 2(p - 1)/p · n words.
#
# **Exercise 3.** Below which k does compression send fewer words?


# %% exercise
def break_even(n, p):
    return ...


# %% check
def check_break_even():
    return compare(
        break_even,
        lambda n, p: n / p,
        [(40, 2), (1000, 8), (1000, 3)],
        {
            "The all-gather has p - 1 rounds: the words grow with p.": lambda n, p: n,
            "An all-gather has the 2k words of *each* other rank, (p - 1) · 2k.": (
                lambda n, p: (p - 1) * n / p
            ),
            "The ring all-reduce sends 2(p - 1)/p · n words, not (p - 1)/p · n.": (
                lambda n, p: n / p / 2
            ),
            "A value takes 2 words: itself and its index.": lambda n, p: 2 * n / p,
            "Both have the factor p - 1: it cancels.": lambda n, p: n / (p - 1),
        },
    )


exercise_3 = verdict(check_break_even, break_even)
print(exercise_3)


# %% solution
def break_even(n, p):
    return n / p


# %%
P, STEPS, K = 4, 300, 2


def gather(comm, x):
    """Return the vectors of all ranks, from messages with values and indices."""
    (places,) = np.nonzero(x)
    message, rows = np.full(2 * K, -1.0), np.zeros((comm.size, N))
    message[: len(places)], message[K : K + len(places)] = x[places], places
    for i in range(comm.size):
        values, indices = message[:K], message[K:].astype(int)
        rows[(comm.rank - i) % comm.size, indices[indices >= 0]] = values[indices >= 0]
        if i < comm.size - 1:
            received = np.empty_like(message)
            right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
            comm.Sendrecv(message, right, recvbuf=received, source=left)
            message = received
    return rows


def train(comm, method):
    """Return words of rank 0 and the error of x, by step; the rate decreases."""
    comm, x, error, path = Metered(comm), np.zeros(N), np.zeros(N), []
    a, b = problem(comm.rank)
    best = np.linalg.solve(*map(sum, zip(*map(problem, range(P)), strict=True)))
    for step in range(STEPS):
        g = a @ x - b
        if method == "exact":
            ALLREDUCE["ring"](comm, g)
            mean = g / comm.size
        elif method == "top-k":
            mean = gather(comm, top_k(g, K)).mean(axis=0)
        else:
            sent, error = with_feedback(lambda v: top_k(v, K), g, error)
            mean = gather(comm, sent).mean(axis=0)
        x = x - 0.2 / (1 + step / 50) * mean
        path.append((comm.bytes_sent / 8, np.mean((x - best) ** 2)))
    return np.array(path)


# %% markdown
# Your numbers: the error by words sent, on 4 ranks whose examples have different
# solutions. At the best x the gradients of the ranks are not 0, only their mean is.

# %% figure
methods = ["exact"]
if exercise_1 == CORRECT:
    methods.append("top-k")
if exercise_1 == exercise_2 == CORRECT:
    methods.append("top-k with feedback")
plt.figure(figsize=(5, 3.2), layout="constrained")
for method in methods:
    path = sim.run(lambda comm, method=method: train(comm, method), P)[0]
    plt.loglog(*path.T, label=f"{method}, {path[0, 0]:.0f} words a step")
plt.gca().set(xlabel="words sent by rank 0", ylabel="error of x", ylim=(1e-5, 3))
plt.legend(loc="lower left")
plt.show()
if exercise_3 == CORRECT:
    print(
        f"{N} words on {P} ranks: worth it if k < {break_even(N, P):g}; here k = {K}."
    )

# %% markdown
# ## Gossip
#
# Each rank replaces its vector by the mean of its own and those of its two neighbours
# on a ring. No rank waits for all others, and the mean over all ranks stays what it
# was.
#
# **Exercise 4.** Complete one round, with equal weights.


# %% exercise
def mix(comm, x):
    """Return the mean of the vectors of this rank and of its two neighbours."""
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    x_left, x_right = np.empty_like(x), np.empty_like(x)
    comm.Sendrecv(x, right, recvbuf=x_left, source=...)
    comm.Sendrecv(x, left, recvbuf=x_right, source=...)
    return ...


# %% check
def check_mix():
    for p in (4, 5):  # row r of W is what rank r computes from unit vectors
        w = np.array(sim.run(lambda comm, p=p: mix(comm, np.eye(p)[comm.rank]), p))
        if w.shape != (p, p):
            return f"Expected a vector as long as x, got the shape {w.shape[1:]}."
        right = sum(np.roll(np.eye(p), shift, axis=1) for shift in (-1, 0, 1)) / 3
        if np.allclose(w, right):
            continue
        row = ", ".join(f"{weight:.3g}" for weight in w[1])
        text = f"On {p} ranks, rank 1 has the weights {row} of ranks 0, 1, …. "
        if not np.allclose(w.sum(axis=1), 1):
            return text + "Their sum must be 1: a mean of three vectors."
        if np.allclose(np.diag(w), 0):
            return (
                text + "Its own vector is missing: on an even ring there is no limit."
            )
        if np.any((w > 0).sum(axis=1) < 3):
            return text + "A neighbour is missing."
        return text + "Expected 1/3 of each."
    return ""


exercise_4 = verdict(check_mix, mix)
print(exercise_4)


# %% solution
def mix(comm, x):
    """Return the mean of the vectors of this rank and of its two neighbours."""
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    x_left, x_right = np.empty_like(x), np.empty_like(x)
    comm.Sendrecv(x, right, recvbuf=x_left, source=left)
    comm.Sendrecv(x, left, recvbuf=x_right, source=right)
    return (x + x_left + x_right) / 3


# %% markdown
# A wave over the ring keeps its form in a round, and is multiplied by a number. The
# wave of rank r is cos(2πjr/p), with j periods on the ring. Its two neighbours have
# cos(2πj(r ± 1)/p), and cos(a + b) + cos(a - b) = 2 cos a cos b.
#
# **Exercise 5.** By which number does a round multiply the slowest wave, j = 1?


# %% exercise
def contraction(p):
    return ...


# %% check
def check_contraction():
    return compare(
        contraction,
        lambda p: 1 / 3 + 2 / 3 * np.cos(2 * np.pi / p),
        [(5,), (8,), (32,)],
        {
            "The weight 1/3 of the rank itself is missing.": (
                lambda p: 2 / 3 * np.cos(2 * np.pi / p)
            ),
            "Two neighbours have the weight 1/3 each: 2/3 together.": (
                lambda p: 1 / 3 + 1 / 3 * np.cos(2 * np.pi / p)
            ),
            "The division by 3 is missing.": lambda p: 1 + 2 * np.cos(2 * np.pi / p),
            "One period on the ring is 2π: the angle of a rank is 2π/p.": (
                lambda p: 1 / 3 + 2 / 3 * np.cos(np.pi / p)
            ),
        },
    )


exercise_5 = verdict(check_contraction, contraction)
print(exercise_5)


# %% solution
def contraction(p):
    return 1 / 3 + 2 / 3 * np.cos(2 * np.pi / p)


# %% markdown
# Your numbers: the distance of all ranks to their mean by round, measured and
# predicted by the slowest wave: an upper bound, because other waves vanish earlier.
# On large rings gossip is slow. A rank sends 2n words in a round, for any p.


# %% figure
def distances(p, rounds):
    def program(comm):
        x = np.random.default_rng(comm.rank).standard_normal(N)
        return [x] + [x := mix(comm, x) for _ in range(rounds)]

    rows = np.array(sim.run(program, p))
    return np.sqrt(np.sum((rows - rows.mean(axis=0)) ** 2, axis=(0, 2)))


plt.figure(figsize=(5, 3.2), layout="constrained")
for colour, p in (("C0", 8), ("C1", 32)):
    if exercise_4 == CORRECT:
        measured = distances(p, 60)
        plt.semilogy(measured / measured[0], f"{colour}.", label=f"{p} ranks, measured")
    if exercise_5 == CORRECT:
        plt.semilogy(contraction(p) ** np.arange(61), colour, lw=1, label="predicted")
plt.gca().set(xlabel="round", ylabel="distance to the mean", yscale="log")
plt.axis((-2, 62, 1e-8, 2))
if CORRECT in (exercise_4, exercise_5):
    plt.legend()
else:
    plt.text(5, 1e-4, "exercises 4 and 5 are not complete")
plt.show()

# %% markdown
# ## Attackers
#
# Of the gradients of n workers f may be anything. One of them moves the mean
# anywhere. The median of each coordinate stays within the honest values, if n > 2f.
#
# **Exercise 6.** `rows` has the gradient of each worker in a row. Return a vector
# whose coordinates are the medians of the workers' values.


# %% exercise
def median(rows):
    return ...


# %% check
import warnings

HONEST = np.array([[1.0, 5.0], [2.0, 9.0], [3.0, 6.0]])
ROWS = np.array([*HONEST, [-90.0, 7.0], [80.0, -80.0]])


def check_median():
    got = np.asarray(median(ROWS))
    if got.shape == () or got.shape == (5,):
        return (
            f"Expected 2 coordinates, got the shape {got.shape}. The median is taken "
            "over the workers, axis 0."
        )
    if np.allclose(got, ROWS.mean(axis=0)):
        return "This is the mean: one attacker moves it anywhere."
    if any(np.array_equal(got, row) for row in ROWS):
        return (
            "This is the gradient of one worker. The median is taken for each "
            "coordinate on its own; different workers may have it."
        )
    if np.allclose(got, np.median(ROWS, axis=0)) and np.allclose(
        median(ROWS[:4]), np.median(ROWS[:4], axis=0)
    ):
        return ""
    if np.allclose(got, np.median(ROWS, axis=0)):
        return (
            "With an even number of workers, it is the mean of the two in the middle."
        )
    return f"Expected {np.median(ROWS, axis=0)} of the rows {ROWS.tolist()}, got {got}."


exercise_6 = verdict(check_median, median)
print(exercise_6)


# %% solution
def median(rows):
    return np.median(rows, axis=0)


# %% markdown
# The median uses one or two values of each coordinate, and is noisy. The trimmed mean
# drops the f smallest and the f largest values of each coordinate, and takes the mean
# of the others.
#
# **Exercise 7.** Complete the trimmed mean, also for f = 0.


# %% exercise
def trimmed_mean(rows, f):
    ordered = np.sort(rows, axis=...)  # of each coordinate
    return ordered[...].mean(axis=0)


# %% check
def check_trimmed_mean():
    got, f = np.asarray(trimmed_mean(ROWS, 1)), 1
    if got.shape != (2,):
        return f"Expected 2 coordinates, got the shape {got.shape}."
    if np.allclose(got, np.sort(ROWS, axis=1)[1:-1].mean(axis=0)):
        return "The values of a worker are sorted: sort each coordinate, axis 0."
    ordered = np.sort(ROWS, axis=0)
    for part, text in [
        (
            ordered[1:],
            "Only the smallest values are dropped: attackers may be large, too.",
        ),
        (
            ordered[:-1],
            "Only the largest values are dropped: attackers may be small, too.",
        ),
        (ordered, "Nothing is dropped: this is the mean."),
    ]:
        if np.allclose(got, part.mean(axis=0)):
            return text
    for f in (1, 2, 0):
        if f == 0:
            with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
                got = trimmed_mean(ROWS, 0)
            if not np.all(np.isfinite(got)):
                return (
                    "With f = 0 nothing is left: [f:-f] is [0:0]. Count from the front."
                )
        right = ordered[f : 5 - f].mean(axis=0)
        if not np.allclose(trimmed_mean(ROWS, f), right):
            return (
                f"With n = 5 and f = {f}, {5 - 2 * f} values remain: expected {right}, "
                f"got {trimmed_mean(ROWS, f)}."
            )
    return ""


exercise_7 = verdict(check_trimmed_mean, trimmed_mean)
print(exercise_7)


# %% solution
def trimmed_mean(rows, f):
    ordered = np.sort(rows, axis=0)  # of each coordinate
    return ordered[f : len(rows) - f].mean(axis=0)


# %% markdown
# Your numbers: the error of x after a training with n = 9 workers, f of which send
# -10 times the mean of the honest gradients.


# %% figure
def attacked(rule, f, workers=9):
    x = np.zeros(N)
    for step in range(60):
        rows = np.array([noisy_gradient(w, step, x) for w in range(workers)])
        rows[workers - f :] = -10 * rows[: workers - f].mean(axis=0)
        x = x - 0.2 * rule(rows, f)
    return min(np.mean((x - 1) ** 2), 1e6)


def noisy_gradient(worker, step, x):
    draws = np.random.default_rng([worker, step])
    inputs = draws.standard_normal((80, N))
    return inputs.T @ (inputs @ (x - 1) + draws.standard_normal(80)) / 80


rules = {"mean": lambda rows, f: rows.mean(axis=0)}
if exercise_6 == CORRECT:
    rules["your median"] = lambda rows, f: median(rows)
if exercise_7 == CORRECT:
    rules["your trimmed mean"] = trimmed_mean
plt.figure(figsize=(5, 3.2), layout="constrained")
for marker, (name, rule) in zip("os^", rules.items(), strict=False):
    errors = [attacked(rule, f) for f in range(5)]
    plt.semilogy(range(5), errors, marker, ls="-", lw=1, label=name)
plt.gca().set(xlabel="attackers f of 9", ylabel="error of x", xticks=range(5))
plt.legend()
plt.show()

# %% markdown
# ## Where to read on
#
# - One file each: `experiments/single/power_sgd.py`, `experiments/single/gossip.py`
#   and `experiments/single/byzantine.py`.
# - The chapters `docs/decentralised.md`, `docs/byzantine.md`, and the section on
#   compression of `docs/data_parallel.md`.
