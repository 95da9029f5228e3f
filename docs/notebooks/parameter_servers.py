# %% markdown
# # Parameter servers and staleness
#
# **Question.** A server keeps the parameters x, and workers send it gradients. Some
# workers are slow, each at other times. Should the others wait for them, compute with
# old parameters, or something between the two?
#
# ```
#   worker at clock c                    server
#     │ ── read ─────────────────────────► │  waits until the rule allows it
#     │ ◄─ x, its version ──────────────── │
#     │    computes a gradient of x        │
#     │ ── gradient, version of its x ───► │  updates x: version + 1
# ```
#
# | rule | a worker at clock c reads x | the server subtracts from x |
# |---|---|---|
# | bsp | when all clocks < c are complete | the gradients of a clock, together |
# | asynchronous | at once | each gradient |
# | ssp | if its copy lacks a clock < c - s: when they are complete | each gradient |
# | essp | as ssp; the server sends x after every clock | each gradient |
# | softsync | at once | the mean of some gradients, divided by their staleness |
#
# A *clock* is one gradient of each worker. A clock is complete when the server has
# the gradients of all workers for it. In an exercise, replace each `...`. Run the
# cell below it: it says what is wrong.

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
from collections.abc import Callable
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np

from dml import sim
from dml.exercises import CORRECT, compare, verdict
from dml.types import Status

WORKERS, CLOCKS, N, RATE = 4, 30, 20, 0.25
NETWORK = sim.Uniform(alpha=1e-3, beta=1e-6)  # fast: a gradient takes seconds
# seconds of each gradient, by worker and clock: any worker may be slow at times
SECONDS = 0.5 + np.random.default_rng(0).exponential(0.5, (WORKERS, CLOCKS))

# %% markdown
# ## The rule of waiting
#
# A worker that has completed its own clocks 0, …, c - 1 is at clock c. It may use a
# copy of x in which the first `complete` clocks of *all* workers are included. With
# the bound s of ssp, it may lack at most the last s clocks before c. With s = 0 it is
# bsp.
#
# **Exercise 1.** May a worker at clock c use this copy?


# %% exercise
def may_use(clock, complete, s):
    return ...


# %% check
def check_may_use():
    for s in (0, 1, 3):
        for clock in range(6):
            for complete in range(8):
                answer = may_use(clock, complete, s)
                if not isinstance(answer, bool | np.bool_):
                    return f"Expected True or False, got {answer}."
                if answer == (complete >= clock - s):
                    continue
                lacks = clock - complete
                text = f"With s = {s}, a worker at clock {clock} may "
                text += "not " if answer else ""
                text += f"use a copy with {complete} complete clocks, which lacks "
                text += f"{lacks if lacks > 0 else 'no'} clocks before {clock}. "
                if lacks == s:
                    text += "Off by one: lacking s clocks is allowed."
                elif lacks == s + 1:
                    text += "Off by one: at most s clocks may be lacking."
                elif lacks <= 0:
                    text += "More complete clocks than needed are welcome."
                return text
    return ""


exercise_1 = verdict(check_may_use, may_use)
print(exercise_1)


# %% solution
def may_use(clock, complete, s):
    return complete >= clock - s


# %% markdown
# ## How long does a training take?
#
# With the rule one can predict when each worker ends each clock, if messages take no
# time. It starts clock c when it has ended clock c - 1, and when all workers have
# ended the clocks that its copy must include.
#
# **Exercise 2.** `seconds[w, c]` is the time that worker w computes at clock c.
# Complete the recurrence.


# %% exercise
def end_times(seconds, s):
    """Return when each worker ends each clock, by worker and clock."""
    end = np.zeros(seconds.shape)
    for c in range(seconds.shape[1]):
        own = 0 if c == 0 else ...  # when each worker has ended its clock before
        others = 0 if c - s <= 0 else ...  # when all have ended the clocks < c - s
        end[:, c] = np.maximum(own, others) + seconds[:, c]
    return end


# %% check
def check_end_times():
    def right(seconds, s, lag=1, slowest=np.max, own_lag=1):
        end = np.zeros(seconds.shape)
        for c in range(seconds.shape[1]):
            own = end[:, c - own_lag] if c >= own_lag else 0
            others = slowest(end[:, c - s - lag]) if c - s > 0 and c - s >= lag else 0
            end[:, c] = np.maximum(own, others) + seconds[:, c]
        return end

    def is_right(**variant):
        return all(
            np.allclose(end_times(SECONDS, s), right(SECONDS, s, **variant))
            for s in (1, 2, 5)
        )

    if is_right() and np.allclose(end_times(SECONDS, 0), right(SECONDS, 0)):
        return ""
    if is_right(lag=0) or is_right(lag=2):
        return (
            "Off by one: the clocks < c - s are complete when all workers have ended "
            "clock c - s - 1."
        )
    if is_right(slowest=np.min):
        return "No worker waits: it must wait for the slowest, the last to end a clock."
    if is_right(slowest=np.mean):
        return "All workers must have ended them: the slowest counts, not the mean."
    first, s = end_times(SECONDS, 1), 1
    wrong = np.argwhere(~np.isclose(first, right(SECONDS, s)))
    w, c = wrong[0] if len(wrong) else (0, 0)
    expected = right(SECONDS, s)[w, c]
    return (
        f"With s = {s}, worker {w} ends clock {c} after {expected:.3f} s, got "
        f"{first[w, c]:.3f} s."
    )


exercise_2 = verdict(check_end_times, end_times)
print(exercise_2)


# %% solution
def end_times(seconds, s):
    """Return when each worker ends each clock, by worker and clock."""
    end = np.zeros(seconds.shape)
    for c in range(seconds.shape[1]):
        own = 0 if c == 0 else end[:, c - 1]
        others = 0 if c - s <= 0 else end[:, c - s - 1].max()
        end[:, c] = np.maximum(own, others) + seconds[:, c]
    return end


# %% markdown
# ## The server and its workers
#
# The protocol in two functions. Rank 0 is the server. A worker keeps a copy of x. It
# asks for x if it keeps no copy or may not use it any more. An eager server (essp)
# sends x without being asked. The problem is a linear regression, whose solution is a
# vector of ones. The gradient of a worker is 1/λ of that of its examples, λ workers.


# %%
class Rule(NamedTuple):
    allows: Callable[[int, int], bool]  # of clock and complete clocks
    count: int = 1  # gradients in an update
    keeps_copy: bool = False  # whether a worker uses a copy for several clocks
    eager: bool = False  # whether the server sends x after every complete clock
    step: Callable | None = None  # x after an update, instead of x - α Σ g


class Run(NamedTuple):
    seconds: float  # virtual
    staleness: list[int]
    events: list[tuple[str, int]]
    curve: np.ndarray  # virtual seconds and errors
    words: float  # that a worker sends and receives in a clock


READ, GRADIENT = 1, 2  # tags


def gradient(worker, clock, x):
    inputs = np.random.default_rng([worker, clock]).standard_normal((8, N))
    return inputs.T @ (inputs @ (x - 1)) / 8 / WORKERS


def work(comm, rule):
    x, complete, version = np.zeros(N), 0, 0
    message = np.empty(2 + N)

    def receive():
        comm.Recv(message, 0)
        return message[2:].copy(), int(message[0]), message[1]

    for clock in range(CLOCKS):
        while rule.eager and (comm.Iprobe(0) or not rule.allows(clock, complete)):
            x, complete, version = receive()
        if not rule.keeps_copy or not rule.allows(clock, complete):
            comm.Send(np.empty(0), 0, READ)
            x, complete, version = receive()
        comm.platform.compute(SECONDS[comm.rank - 1, clock])
        comm.Send(np.append(version, gradient(comm.rank, clock, x)), 0, GRADIENT)
    while rule.eager and complete < CLOCKS:
        x, complete, version = receive()


def serve(comm, rule):
    x, version, words = np.zeros(N), 0, 0
    ended, waiting, pending = dict.fromkeys(range(1, comm.size), 0), [], []
    message, status = np.empty(1 + N), Status()
    staleness, events, curve = [], [], [(0, 1)]
    while min(ended.values()) < CLOCKS:
        comm.Recv(message, status=status)
        worker, complete = status.source, min(ended.values())
        if status.tag == READ:
            waiting.append(worker)
        else:
            events.append(("gradient", worker))
            staleness.append(int(version - message[0]))
            pending.append((staleness[-1], message[1:].copy()))
            ended[worker] += 1
            words += N
            if len(pending) == rule.count:
                step = rule.step or (lambda x, p, rate: x - rate * sum(g for _, g in p))
                x, pending, version = step(x, pending, RATE), [], version + 1
                events.append(("update", worker))
            curve.append((comm.Wtime(), np.mean((x - 1) ** 2)))
        now = min(ended.values())
        receivers = [w for w in waiting if rule.allows(ended[w], now)]
        if rule.eager and now > complete:
            receivers = list(ended)
        for w in receivers:
            comm.Isend(np.concatenate([[now, version], x]), w)
            events.append(("read", w))
            words += N
        waiting = [w for w in waiting if w not in receivers]
    words /= WORKERS * CLOCKS
    return Run(comm.Wtime(), staleness, events, np.array(curve), words)


def train(rule):
    programs = {True: serve, False: work}
    run = sim.run(
        lambda comm: programs[comm.rank == 0](comm, rule), 1 + WORKERS, NETWORK
    )
    return run[0]


asynchronous = train(Rule(lambda clock, complete: True))
print(f"asynchronous: {asynchronous.seconds:.1f} virtual seconds")
print(
    f"error {asynchronous.curve[-1, 1]:.1e}, staleness {asynchronous.staleness[:12]} …"
)

# %% markdown
# Your rule against your prediction: virtual seconds by s, and those of the
# asynchronous server. The curve of ssp is drawn when exercises 1 and 2 are correct.

# %% figure
bounds = range(9)
plt.figure(figsize=(5, 3.2), layout="constrained")
plt.axhline(asynchronous.seconds, color="C1", label="asynchronous")
if exercise_1 == exercise_2 == CORRECT:
    rules = [Rule(lambda c, complete, s=s: may_use(c, complete, s)) for s in bounds]
    plt.plot(bounds, [train(rule).seconds for rule in rules], "C0o", label="measured")
    predicted = [end_times(SECONDS, s).max() for s in bounds]
    plt.plot(bounds, predicted, "C0", lw=1, label="predicted by exercise 2")
plt.gca().set(xlabel="s (0 is bsp)", ylabel="virtual seconds", xlim=(-0.5, 8.5))
plt.legend()
plt.show()

# %% markdown
# ## Staleness
#
# The staleness τ of a gradient is the number of updates that the server made after it
# sent the x of this gradient, and before it uses the gradient. A gradient of the
# newest x has τ = 0.
#
# The server's log has three kinds of events: `("read", w)`, x was sent to worker w;
# `("gradient", w)`, a gradient of worker w arrived; `("update", w)`, x was updated,
# right after the gradient of worker w.
#
# **Exercise 3.** Compute τ of each gradient from the log.


# %% exercise
def staleness(events):
    version, version_read, taus = 0, {}, []
    for kind, worker in events:
        if kind == "read":
            version_read[worker] = ...
        elif kind == "gradient":
            taus.append(...)
        else:
            version = ...
    return taus


# %% check
def check_staleness():
    events = asynchronous.events
    answer, right = staleness(events), asynchronous.staleness
    if answer == right:
        return ""
    difference = {a - b for a, b in zip(answer, right, strict=False)}
    if difference == {1}:
        return (
            "Off by one: each τ is one too large. The update by the gradient itself "
            "does not count: it comes after the gradient."
        )
    if difference == {0, -1} or difference == {-1}:
        return "Off by one: a τ is one too small. Is the version 0 before any update?"
    if answer and all(a <= 0 for a in answer) and min(answer) < 0:
        return "The sign is wrong: the version now, minus the version that was read."
    if not any(answer):
        return "All are 0. Does `version` grow with each update?"
    i = next(i for i, (a, b) in enumerate(zip(answer, right, strict=False)) if a != b)
    return (
        f"Expected {right[: i + 1]} for the first gradients, got {answer[: i + 1]}. "
        "Which worker's read counts?"
    )


exercise_3 = verdict(check_staleness, staleness)
print(exercise_3)


# %% solution
def staleness(events):
    version, version_read, taus = 0, {}, []
    for kind, worker in events:
        if kind == "read":
            version_read[worker] = version
        elif kind == "gradient":
            taus.append(version - version_read[worker])
        else:
            version = version + 1
    return taus


# %% markdown
# ## Softsync
#
# Softsync (Zhang 2015) waits for no worker in particular: it updates x when any c
# gradients have arrived. A stale gradient gets a smaller rate, α/τ; a gradient with τ
# = 0 gets α, as one with τ = 1. The update subtracts the mean of the c terms, so that
# its length does not depend on c.
#
# **Exercise 4.** Complete the update. `pending` has c pairs of τ and a gradient.


# %% exercise
def softsync(x, pending, rate):
    """Return x after an update."""
    total = np.zeros_like(x)
    for tau, gradient in pending:
        total += ...
    return x - ...


# %% check
def check_softsync():
    x, rate, g = np.ones(2), 0.5, np.array([[1.0, 2.0], [4.0, 8.0], [6.0, -3.0]])

    def got(*taus):
        return softsync(x, list(zip(taus, g, strict=False)), rate) - x

    def terms(*weights, share=1.0):
        return -rate * share * sum(w * one for w, one in zip(weights, g, strict=False))

    with np.errstate(all="ignore"):
        if not np.all(np.isfinite(got(0, 1))):
            return "With τ = 0 the update is not finite: it divides by τ = 0."
    if np.allclose(got(0), 0) and np.allclose(got(1), 0):
        return "x does not change."
    if np.allclose(got(1), -terms(1)):
        return "The sign is wrong: an update subtracts."
    if np.allclose(got(1), terms(1) / rate):
        return "The rate is missing."
    if np.allclose(got(1), terms(1 / 2)):
        return "A gradient with τ = 1 has the rate α, not α/2: divide by max(1, τ)."
    if np.allclose(got(1, 2, 3), terms(1, 1 / 2, 1 / 3, share=6 / 11)):
        return "Divide by the number of terms c, not by the sum of the weights 1/τ."
    if np.allclose(got(2), terms(1)):
        return "A stale gradient must have a smaller rate: divide it by its τ."
    if np.allclose(got(2), terms(2)):
        return "A stale gradient must have a smaller rate, not a larger one."
    if np.allclose(got(1, 2, 3), terms(1, 1 / 2, 1 / 3)):
        return "The division by c is missing: the mean of the terms, not their sum."
    if np.allclose(got(1, 2, 3), terms(1, 1 / 2, 1 / 3, share=1 / 3)):
        return ""
    return (
        f"Expected x - {-terms(1, 1 / 2, 1 / 3, share=1 / 3)} for τ = 1, 2, 3, got "
        f"x - {-got(1, 2, 3)}."
    )


exercise_4 = verdict(check_softsync, softsync)
print(exercise_4)


# %% solution
def softsync(x, pending, rate):
    """Return x after an update."""
    total = np.zeros_like(x)
    for tau, gradient in pending:
        total += gradient / max(1, tau)
    return x - rate * total / len(pending)


# %% markdown
# ## Words
#
# A worker sends n words of gradient at every clock. With bsp and an asynchronous
# server it also receives x, n words, at every clock. With ssp it keeps its copy until
# the copy lacks more than s clocks. An eager server (essp) sends x after every clock:
# the copies are newer, and cost more words.
#
# **Exercise 5.** How many words does a worker send and receive in a clock, on average
# over many clocks, if all workers are equally fast?


# %% exercise
def words_of_a_clock(n, s, eager):
    return ...


# %% check
def check_words():
    def right(n, s, eager):
        return 2 * n if eager else n + n / (s + 1)

    points = [(n, s, eager) for n in (10, 24) for s in (1, 2, 5) for eager in (0, 1)]
    message = compare(
        words_of_a_clock,
        right,
        points,
        {
            "Off by one: a copy is used for s + 1 clocks, also for that of its read.": (
                lambda n, s, eager: 2 * n if eager else n + n / s
            ),
            "The words of the gradients are missing.": (
                lambda n, s, eager: right(n, s, eager) - n
            ),
            "The words of x are missing.": lambda n, s, eager: n,
            "An eager server sends x after every clock: n words.": (
                lambda n, s, eager: n + n / (s + 1)
            ),
            "The worker of ssp receives x only when its copy is too old.": (
                lambda n, s, eager: 2 * n
            ),
        },
    )
    return message or compare(words_of_a_clock, right, [(10, 0, 0), (10, 0, 1)], {})


exercise_5 = verdict(check_words, words_of_a_clock)
print(exercise_5)


# %% solution
def words_of_a_clock(n, s, eager):
    return 2 * n if eager else n + n / (s + 1)


# %% markdown
# ## Your numbers
#
# Left: the error by virtual seconds. Right: the shares of staleness. bsp, ssp and
# essp are drawn when exercise 1 is correct, softsync when exercise 4 is: with λα for
# α, because a gradient is 1/λ of a mean. The table has the words of a worker in a
# clock, measured and, when exercise 5 is correct, predicted.

# %% figure
runs = {"asynchronous": asynchronous}
if exercise_1 == CORRECT:
    runs["bsp"] = train(Rule(lambda *at: may_use(*at, 0), count=WORKERS))
    runs["ssp, s = 2"] = train(Rule(lambda *at: may_use(*at, 2), 1, True))
    runs["essp, s = 2"] = train(Rule(lambda *at: may_use(*at, 2), 1, True, True))
if exercise_4 == CORRECT:
    step = lambda x, pending, rate: softsync(x, pending, rate * WORKERS)  # noqa: E731
    runs["softsync, c = 2"] = train(Rule(lambda *at: True, count=2, step=step))
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
print("rule              seconds    error  mean τ  most τ  words  predicted")
for name, run in runs.items():
    left.semilogy(*run.curve.T, label=name)
    values, counts = np.unique(run.staleness, return_counts=True)
    right.plot(values, counts / counts.sum(), "o-", ms=4, label=name)
    numbers = f"{np.mean(run.staleness):8.1f}{max(run.staleness):8}{run.words:7.1f}"
    if exercise_5 == CORRECT:
        s = 2 if name.startswith("ssp") else 0
        numbers += f"{words_of_a_clock(N, s, name.startswith('essp')):11.1f}"
    print(f"{name:18}{run.seconds:7.1f}{run.curve[-1, 1]:9.0e}{numbers}")
left.set(xlabel="virtual seconds", ylabel="mean of (x - 1)²")
right.set(xlabel="staleness τ", ylabel="share of gradients")
left.legend()
plt.show()

# %% markdown
# ssp waits only for workers that are more than s clocks behind, and takes hardly
# longer than the asynchronous server. It takes more words than predicted: a worker
# that is ahead of others reads an x that lacks some of its clocks already, and must
# read again earlier.
#
# ## Where to read on
#
# - The five rules in one file: `experiments/single/parameter_server.py`. There
#   workers also add their own steps to their copies.
# - The chapter `docs/server.md`, with backup workers, filters and several servers.
# - `docs/measured/consistency.md` and `docs/measured/softsync.md`: the rules compared
#   on real ranks, and with the papers.
