"""Claims of Muon's distributed updates, judged by owners.py.

Jordan et al., Muon, 2024, and Liu et al., Muon is Scalable for LLM Training, 2025. The
latter divides matrices into slices, which are gathered for each update; owners have
complete matrices.
"""

from lab.claims import Verdict, claim, grouped, matching, nonempty, rows, verdict

from dml.runs.results import Run

MOST_WORDS = 1.25  # relative to those of AdamW's ZeRO-1, Liu 2025, section 2.3
MOST_STATE = 0.6  # of the bytes of AdamW's; tables and outputs have AdamW's state


@claim("distributed updates equal those of one process", "mathematically equivalent")
def equal_bits(run: Run) -> Verdict:
    """For each optimizer, order-free trainings on all numbers of ranks, by owned and by
    replicated updates, have equal hashes.
    """
    trained = rows(run, table="training", reducer="order_free")
    groups = grouped(trained, "optimizer")
    hashes = {name: {row["sha256"] for row in same} for name, same in groups.items()}
    ranks = sorted({row["ranks"] for row in trained})
    different = [name for name, values in hashes.items() if len(values) > 1]
    measured = f"{sum(map(len, hashes.values()))} hashes of {len(hashes)} optimizers"
    reason = f"{len(trained)} trainings on {', '.join(map(str, ranks))} ranks"
    return verdict(not different and len(ranks) > 1, measured, reason)


@claim("words relative to AdamW's", "1 to 1.25")
def words_as_adamw(run: Run) -> Verdict:
    """Owned Muon sends at most 1.25 times the words of a ring all-reduce, and exactly
    the predicted words.
    """
    trained = [
        row
        for row in rows(run, table="training", optimizer="muon", strategy="owned")
        if row["reducer"] == "exact" and row["ranks"] > 1
    ]
    ratios = [row["words_sent"] / row["predicted"] for row in nonempty(trained, "p")]
    exact = all(
        row["words_sent"] == row["predicted"] + row["clip_words"] for row in trained
    )
    measured = f"{max(ratios):.4f} times, {'as' if exact else 'not as'} predicted"
    reason = "the prediction is 2(p-1)(n+1), the sums of squares of the clip are added"
    return verdict(exact and max(ratios) <= MOST_WORDS, measured, reason)


@claim("the state of the optimizer is half of AdamW's", "half")
def half_state(run: Run) -> Verdict:
    """On one rank Muon's state has at most 0.6 times the bytes of AdamW's."""
    one_rank = matching(rows(run, table="training"), ranks=1, strategy="owned")
    nbytes = {row["optimizer"]: row["state_bytes"] for row in one_rank}
    ratio = nbytes["muon"] / nbytes["adamw"]
    reason = f"at most {MOST_STATE:g}: tables and outputs have AdamW's state"
    return verdict(ratio <= MOST_STATE, f"{ratio:.2f} times", reason)


CLAIMS = equal_bits, words_as_adamw, half_state
