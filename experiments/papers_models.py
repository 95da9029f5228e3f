"""Papers on large models and what they cost: their rows, and rules over our runs."""

from papers_claims import Claim, Command, Finding, Paper, Seen, judged, never, some

FORMULA = 0.05  # of a speed-up: stages are not quite even, messages take time
CELL = 0.1  # of a published cell
LINEAR = 0.75  # of K: 0.79 is the least that is published for M = 32
BOUND = 0.2  # of K/imbalance, which no pipeline reaches: it fills and drains
ALLREDUCES = 4  # of a block: 2 forward, 2 backward
ROUNDED = 0.05  # of the lecture's sizes, which are rounded to two digits
SCALES = 0.85  # of linear: nearly
MODEL = 0.1  # of published minutes
FORTNIGHT = 14 * 24 * 60.0  # minutes: one V100 takes more
SHOWN = 0.01  # of a printed cell: what watts and hours are rounded to


def cells(seen: Seen, table: str = "grid") -> list[dict]:
    return some([row for row in seen["pipeline"].rows if row["table"] == table], table)


def as_formula(seen: Seen) -> Finding:
    """For every K and M virtual ranks are within 5 % of KM/(M + K - 1)."""
    off = [row["virtual"] / row["formula"] - 1 for row in cells(seen)]
    worst = max(off, key=abs)
    return judged(abs(worst) <= FORMULA, f"{worst:+.1%} at most", f"{len(off)} cells")


def as_published(seen: Seen) -> Finding:
    """Each of the nine published cells is ours within 10 %."""
    rows = cells(seen)
    far = [
        f"K = {row['stages']}, M = {row['microbatches']}: {row['virtual']:.2f} of "
        f"{row['published']:g}"
        for row in rows
        if abs(row["virtual"] / row["published"] - 1) > CELL
    ]
    ours = f"{len(rows) - len(far)} of {len(rows)}"
    return judged(not far, ours, "; ".join(far) or "all are near")


def almost_linear(seen: Seen) -> Finding:
    """At the largest M the speed-up is 0.75 K or more, for every K."""
    rows = cells(seen)
    most = max(row["microbatches"] for row in rows)
    shares = [
        row["virtual"] / row["stages"] for row in rows if row["microbatches"] == most
    ]
    ours = f"{min(shares):.2f} K at least"
    return judged(min(shares) >= LINEAR, ours, f"M = {most}, asked {LINEAR:g}")


def imbalanced(seen: Seen) -> Finding:
    """Uneven stages reach at most K/imbalance, and 80 % of that or more."""
    rows = cells(seen, "imbalance")
    shares = [row["virtual"] / row["bound"] for row in rows]
    ours = f"{min(shares):.2f} to {max(shares):.2f} of K/imbalance"
    holds = min(shares) >= 1 - BOUND and max(shares) <= 1
    return judged(holds, ours, f"{len(rows)} cuts, published {published(rows)}")


def published(rows: list[dict]) -> str:
    return ", ".join(dict.fromkeys(f"{row['published']:g}" for row in rows))


def two_and_two(seen: Seen) -> Finding:
    """The compiled block has 4 all-reduces, and exactly the formula's bytes.

    A device sends 2 b s h (t - 1)/t words in each: batch, places, width, devices.
    """
    summary = seen["tensor"].summary
    counts = some(by_devices(summary, "block_collectives_"), "block_collectives")
    sent, wanted = (
        by_devices(summary, f"block_{which}bytes_") for which in ("", "formula_")
    )
    holds = sent == wanted and set(counts.values()) == {ALLREDUCES}
    ours = ", ".join(
        f"{count} all-reduces, {sent[t]:,.0f} bytes of {wanted[t]:,.0f} on {t}"
        for t, count in counts.items()
    )
    return judged(holds, ours, "read from the compiled program")


def by_devices(summary: dict, start: str) -> dict[int, float]:
    found = {key.removeprefix(start): key for key in summary if key.startswith(start)}
    return {int(t): summary[key] for t, key in found.items() if t.isdecimal()}


def sixteen_bytes(seen: Seen) -> Finding:
    """16 bytes a counted parameter are within 5 % of each of the lecture's sizes."""
    return near(seen, "gigabytes", "GB")


def counted(seen: Seen) -> Finding:
    """The parameters of the real shapes are within 5 % of the lecture's."""
    return near(seen, "billions", "B")


def near(seen: Seen, number: str, unit: str) -> Finding:
    rows = [row for row in seen["memory"].rows if row["table"] == "lecture"]
    off = {row["model"]: row[number] / row[f"published_{number}"] - 1 for row in rows}
    ours = ", ".join(f"{row['model']} {row[number]:,.4g} {unit}" for row in rows)
    worst = max(off.values(), key=abs)
    return judged(abs(worst) <= ROUNDED, ours, f"{worst:+.1%} off at most")


def bert(seen: Seen) -> dict[str, dict]:
    rows = [row for row in seen["scaling"].rows if row["table"] == "bert"]
    return {row["job"]: row for row in rows}


def efficient(seen: Seen) -> Finding:
    """The published minutes at 1024 and 1472 are 85 % of linear from 256, or more."""
    row = bert(seen)["published"]
    shares = [row["efficiency_1024"], row["efficiency_1472"]]
    ours = f"{shares[0]:.1%} at 1024, {shares[1]:.1%} at 1472"
    return judged(min(shares) >= SCALES, ours, f"asked {SCALES:.0%}; arithmetic")


def modelled(seen: Seen) -> Finding:
    """A model by alpha, beta, gamma, fitted to 256, misses both others by at most 10 %.

    Rings on one level or two, overlapped or in turn: the best of four.
    """
    off = {
        job: max(abs(row["error_1024"]), abs(row["error_1472"]))
        for job, row in bert(seen).items()
        if job != "published"
    }
    best = min(off, key=lambda job: off[job])
    ours = f"{best}: {off[best]:.1%}"
    return judged(off[best] <= MODEL, ours, f"asked {MODEL:.0%}; 4 models")


def fortnight(seen: Seen) -> Finding:
    """256 V100 minutes, were they linear, make over two weeks of one V100."""
    alone = 256 * bert(seen)["published"]["minutes_256"]
    ours = f"{alone / 24 / 60:.0f} days"
    return judged(alone > FORTNIGHT, ours, "asked 14; arithmetic")


def recomputed(seen: Seen) -> Finding:
    """No cell is off by more than 1 %, from hours, exact ones where they are known."""
    summary = seen["carbon"].summary
    worst = summary["strubell_worst_error"]
    ours = f"off by {worst:.2%} at most"
    return judged(worst <= SHOWN, ours, f"{summary['strubell_cells']} cells")


def rounded(seen: Seen) -> Finding:
    """Every cell, from the same hours, is the printed one after rounding."""
    summary = seen["carbon"].summary
    exact, count = summary["strubell_exact"], summary["strubell_cells"]
    return judged(
        exact == count > 0, f"{exact} of {count}", "to the last printed digit"
    )


MODELS = (
    Paper(
        "gpipe",
        "Huang et al., GPipe: Efficient Training of Giant Neural Networks using "
        "Pipeline Parallelism, NeurIPS 2019, Table 2",
        "2 to 8 virtual devices of 2 to 8; 46 blocks 128 wide, timed here",
        (
            Claim("speed-up is KM/(M + K - 1)", "formula", as_formula),
            Claim(
                "its nine cells, Transformer",
                "K = 2, 4, 8: M = 1 1, 1.07, 1.3; M = 4 1.7, 3.2, 4.8; M = 32 1.8, "
                "3.4, 6.3",
                as_published,
            ),
            Claim("almost linear at M = 32", "0.79 K at least", almost_linear),
            Claim("imbalance bounds it", "AmoebaNet 1.21, 1.84, 3.48", imbalanced),
        ),
        {
            "pipeline": Command(
                "pipeline.py",
                "",
                "--measured=",
                "--measured= --layer_seconds=" + ",".join(["0.003"] * 48),
            )
        },
        "pipeline/schedules.svg",
        (30, 6),
    ),
    Paper(
        "megatron",
        "Shoeybi et al., Megatron-LM, 2019; the lecture's sizes of models",
        "2 and 4 devices of one process, of 512 V100; sizes are counted",
        (
            Claim("2 + 2 all-reduces a layer", "exact bytes", two_and_two),
            Claim("sizes of models", "0.32, 1.5, 17.2, 175 B", counted),
            Claim("16 bytes a parameter", "5.12, 24, 275, 2800 GB", sixteen_bytes),
            Claim(
                "8.3 B on 512 V100",
                "15.1 PFLOP/s, 76 %",
                never("512 GPUs are not here"),
            ),
        ),
        {
            "tensor": Command(
                "tensor.py",
                "--repeats=0",
                "--width=256 --vocabulary=1024",
                "--tensor=2 --width=16 --heads=2 --vocabulary=12 --length=8 --batch=2",
            ),
            "memory": Command(
                "memory.py", "--nocompiled", "--model=gpt2", "--model=gpt2"
            ),
        },
        "tensor/tensor.svg",
        (30, 12),
    ),
    Paper(
        "bert_large",
        "The lecture: BERT-large on 256, 1024 and 1472 V100",
        "the table's own numbers, and a model of 1472 V100; nothing is trained",
        (
            Claim("it scales", "236, 67, 47 min on 256, 1024, 1472", efficient),
            Claim("alpha, beta, gamma explain it", "67 and 47 min", modelled),
            Claim("one V100 takes over two weeks", "> 2 weeks", fortnight),
        ),
        {
            "scaling": Command(
                "scaling.py",
                "--step_seconds=0.1 --parameters=340000000 --bytes_per_parameter=2",
                "",
                "--workers=2",
            )
        },
        "scaling/scaling.svg",
        (5, 5),
    ),
    Paper(
        "strubell",
        "Strubell et al., Energy and Policy Considerations for Deep Learning in NLP, "
        "ACL 2019, as in the lecture",
        "the table's own watts and hours",
        (
            Claim("kWh, CO2e and dollars are a formula", "its table", recomputed),
            Claim("to the digit that is printed", "its table", rounded),
        ),
        {"carbon": Command("carbon.py", "--nomeasure")},
        "",
        (4, 4),
    ),
)
