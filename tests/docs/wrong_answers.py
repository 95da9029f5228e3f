"""Answers that readers of the notebooks often give: a part of the solution, what stands
there instead, and a part of the message that they get.
"""

WRONG = {
    "allreduce": {
        "reduce_scatter": [
            (
                "(rank - i - 1) % p",
                "(rank - i) % p",
                "a rank sends the chunk to which it added",
            ),
            ("(rank - i - 1) % p", "(rank - i + 1) % p", "lacks the values of rank"),
            ("range(p - 1)", "range(p)", "p - 1 rounds suffice"),
            ("range(p - 1)", "range(p - 2)", "lacks the values of rank"),
            (
                "(rank - i) % p]  # sent to the right\n"
                "        sums = chunks[(rank - i - 1) % p]",
                "(rank - i + 1) % p]\n        sums = chunks[(rank - i) % p]",
                "Off by one: with p = 3, rank 0 ends with the sum of chunk 2",
            ),
            ("sums += received", "pass", "lacks the values of rank"),
        ],
        "all_gather": [
            (
                "(rank + 1 - i) % p]\n        incoming = chunks[(rank - i) % p]",
                "(rank - i) % p]\n        incoming = chunks[(rank - i - 1) % p]",
                "In round 0, rank r sends chunk r + 1",
            ),
            ("chunks[(rank - i) % p]", "chunks[(rank + i) % p]", "chunk that it just"),
        ],
        "ring_seconds": [
            ("n / p", "n", "The division by p is missing"),
            ("2 * (p - 1)", "(p - 1)", "The factor 2 is missing"),
            ("2 * (p - 1)", "2 * p", "One round too many"),
            ("n / p", "n / (p - 1)", "A chunk has n/p words"),
            ("n / p", "8 * n / p", "8 bytes of a word already"),
            ("n / p", "n / p + 1", "Expected ring_seconds(2, 16, 1e-06, 1e-09) = "),
        ],
        "crossover": [
            ("8 * beta", "beta", "a word has 8 bytes"),
            ("(lg - 2 * (p - 1) / p)", "(2 * (p - 1) / p - lg)", "The sign is wrong"),
            ("(lg - 2 * (p - 1) / p)", "(lg - 2 * (p - 1))", "has n/p words"),
        ],
        "update": [
            (" / comm.size", "", "The division by p is missing"),
            ("rate * total", "total", "The rate is missing"),
            ("total / comm.size", "gradient", "different parameters"),
            ("rate * total / comm.size", "0 * total", "Expected [-0.25 "),
        ],
    },
    "parameter_servers": {
        "may_use": [
            ("complete >= clock - s", "complete > clock - s", "lacking s clocks is"),
            (
                "complete >= clock - s",
                "complete >= clock - s - 1",
                "at most s clocks may",
            ),
            ("complete >= clock - s", "complete == clock - s", "are welcome"),
            ("complete >= clock - s", "clock - s", "Expected True or False, got 0"),
        ],
        "end_times": [
            ("c - s - 1].max()", "c - s].max()", "Off by one: the clocks < c - s are"),
            ("c - s - 1].max()", "c - s - 1].min()", "No worker waits"),
            ("c - s - 1].max()", "c - s - 1].mean()", "not the mean"),
            ("c - s - 1].max()", "c - s - 1]", "No worker waits"),
            (
                "end[:, c - 1]",
                "end[:, c - 1].max()",
                "With s = 1, worker 0 ends clock 1",
            ),
        ],
        "staleness": [
            ("taus.append(version -", "taus.append(version + 1 -", "does not count"),
            ("version - version_read[worker]", "version", "Which worker's read"),
            ("= version + 1", "= version", "Does `version` grow with each update?"),
            (
                "version - version_read[worker]",
                "version_read[worker] - version",
                "The sign is wrong",
            ),
            (
                "version_read[worker] = version",
                "version_read[worker] = version + 1",
                "one too small",
            ),
        ],
        "softsync": [
            (" / max(1, tau)", " / tau", "With τ = 0 the update is not finite"),
            ("max(1, tau)", "(1 + tau)", "divide by max(1, τ)"),
            (" / max(1, tau)", "", "A stale gradient must have a smaller rate"),
            ("/ max(1, tau)", "* max(1, tau)", "not a larger one"),
            (" / len(pending)", "", "The division by c is missing"),
            (
                "len(pending)",
                "sum(1 / max(1, tau) for tau, _ in pending)",
                "not by the sum of the weights",
            ),
            ("x - rate", "x + rate", "The sign is wrong"),
            ("rate * total", "total", "The rate is missing"),
            ("- rate * total / len(pending)", "", "x does not change"),
            ("len(pending)", "len(pending) ** 2", "for τ = 1, 2, 3, got"),
        ],
        "words_of_a_clock": [
            ("n / (s + 1)", "n / s", "Off by one: a copy is used for s + 1 clocks"),
            ("2 * n if eager else n + n", "n if eager else n", "gradients are missing"),
            ("2 * n if eager else n + n / (s + 1)", "n", "The words of x are missing"),
            ("2 * n if eager else ", "", "An eager server sends x after every clock"),
            ("n + n / (s + 1)", "2 * n", "only when its copy is too old"),
        ],
    },
    "model_parallelism": {
        "slices": [
            ("up, p, axis=1", "up, p, axis=0", "With some rows of U"),
            ("down, p, axis=0", "down, p, axis=1", "multiplies them with the rows"),
            ("axis=1)[rank]", "axis=1)[-1 - rank]", "slices of its own number"),
        ],
        "block": [
            (
                "x + all_reduce(comm, hidden",
                "all_reduce(comm, x + hidden",
                "x is added 2",
            ),
            ("x + all_reduce(comm, hidden @ down)", "x + hidden @ down", "own term of"),
            ("x + all_reduce", "all_reduce", "x is missing"),
            ("hidden @ down)", "hidden @ down) / comm.size", "not a mean"),
            ("x + all_reduce", "x - all_reduce", "Expected ["),
        ],
        "gradient_of_x": [
            ("grad + all_reduce", "all_reduce", "x also goes around the matrices"),
            (
                "all_reduce(comm, grad_hidden @ up.T)",
                "grad_hidden @ up.T",
                "the sum over",
            ),
            (
                "grad + all_reduce(comm, grad_hidden",
                "all_reduce(comm, grad + grad_hidden",
                "`grad` is added 2 times",
            ),
            ("grad + all_reduce", "grad - all_reduce", "Expected ["),
        ],
        "tensor_words": [
            ("all_reduces * 2", "2", "one forward and one backward"),
            (
                "examples * width",
                "examples * hidden",
                "The hidden units are never sent",
            ),
            ("(p - 1) / p", "(p - 1)", "not 2(p - 1)"),
            ("examples * width", "width", "n = examples · width"),
            ("* 2 * (p - 1) / p ", "", "2(p - 1)/p words for each word of an"),
        ],
        "bubble": [
            ("(count + ranks - 1)", "count", "not by the whole time"),
            ("return (ranks - 1)", "return ranks", "with K = 1 a rank is never idle"),
            ("count + ranks - 1", "count + ranks", "time of M + K - 1 microbatches"),
            ("return (", "return 2 * (", "it cancels"),
            ("return (ranks - 1)", "return count", "in which a rank works"),
            ("(count + ranks - 1)", "ranks", "the bubble of one microbatch"),
        ],
        "one_forward_one_backward": [
            (
                "ranks - 1 - rank",
                "ranks - rank",
                "4 microbatches in flight, expected 3",
            ),
            ("ranks - 1 - rank", "ranks - 2 - rank", "Off by one"),
            (
                '("F", ahead + m), ("B", m)]',
                '("B", m), ("F", ahead + m)]',
                "B0 comes before F0",
            ),
            ('("F", ahead + m)', '("F", m)', "each forward and backward must be there"),
            ("ranks - 1 - rank", "count", "4 microbatches in flight, expected 3"),
        ],
    },
    "inexact_means": {
        "top_k": [
            ("np.abs(x)", "x", "Negative values count as much"),
            ("[-k:]", "[:k]", "The smallest values are kept"),
            ("[-k:]", "[-k - 1:]", "2 values of"),
            ("x[largest]", "np.abs(x[largest])", "Expected [ 0.9  0.   0.  -0.5]"),
        ],
        "with_feedback": [
            ("gradient + error", "gradient", "there is no feedback"),
            ("corrected - sent", "gradient - sent", "The error of the steps before is"),
            (
                "corrected - sent",
                "error + corrected - sent",
                "The error is counted twice",
            ),
            ("corrected - sent", "sent", "The error is what was not sent"),
            ("corrected - sent", "sent - corrected", "The sign is wrong"),
            ("corrected - sent", "0 * sent", "gradient minus what was sent"),
        ],
        "break_even": [
            ("n / p", "n", "the words grow with p"),
            ("n / p", "(p - 1) * n / p", "of *each* other rank"),
            ("n / p", "n / p / 2", "not (p - 1)/p"),
            ("n / p", "2 * n / p", "itself and its index"),
            ("n / p", "n / (p - 1)", "it cancels"),
        ],
        "mix": [
            ("x + x_left + x_right", "x_left + x_right", "Their sum must be 1"),
            ("(x + x_left + x_right) / 3", "(x_left + x_right) / 2", "no limit"),
            (
                "(x + x_left + x_right) / 3",
                "(x + x_left) / 2",
                "A neighbour is missing",
            ),
            (
                "x + x_left + x_right) / 3",
                "2 * x + x_left + x_right) / 4",
                "1/3 of each",
            ),
            ("x_left, source=left", "x_left, source=right", "Deadlock"),
        ],
        "contraction": [
            ("1 / 3 + ", "", "The weight 1/3 of the rank itself is missing"),
            ("2 / 3", "1 / 3", "2/3 together"),
            ("1 / 3 + 2 / 3", "1 + 2", "The division by 3 is missing"),
            ("2 * np.pi", "np.pi", "One period on the ring is 2π"),
        ],
        "median": [
            ("np.median", "np.mean", "one attacker moves it anywhere"),
            ("axis=0", "axis=1", "over the workers, axis 0"),
            (", axis=0", "", "over the workers, axis 0"),
            (
                "np.median(rows, axis=0)",
                "rows[np.argsort(rows.sum(axis=1))[len(rows) // 2]]",
                "the gradient of one worker",
            ),
            (
                "np.median(rows, axis=0)",
                "np.sort(rows, axis=0)[len(rows) // 2]",
                "the mean of the two in the middle",
            ),
        ],
        "trimmed_mean": [
            ("len(rows) - f", "-f", "[f:-f] is [0:0]"),
            ("[f : len(rows) - f]", "[f:]", "Only the smallest values are dropped"),
            (
                "f : len(rows) - f",
                ": len(rows) - f",
                "Only the largest values are dropped",
            ),
            ("[f : len(rows) - f]", "", "this is the mean"),
            ("np.sort(rows, axis=0)", "np.sort(rows, axis=1)", "sort each coordinate"),
            ("len(rows) - f]", "len(rows) - f - 1]", "3 values remain"),
        ],
    },
}
