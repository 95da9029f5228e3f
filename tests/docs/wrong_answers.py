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
}
