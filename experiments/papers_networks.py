"""Papers on all-reduces and networks: their rows of the table, rules over our runs."""

from collections.abc import Callable

from papers_claims import Claim, Command, Finding, Paper, Seen, judged, never, some

# 25 Gb/s out of a host of 4 GPUs, 5 us a message: Horovod's machines, as reported.
PORT = "--host=4 --rates=5e-6,3.2e-10,1e-11 --workers=512 --batch=64"
FLAT = "--networks=uniform --algorithms=ring,butterfly --workers=2"
FABRICS = "--networks=torus,fat_tree,dragonfly,slim_fly --workers=2"
SCHEDULES = "--algorithms=tree,butterfly,halving_doubling,ring,hierarchical"

GROWS = 1.15  # of a ring's time, of few ranks: (p - 1)/p and what messages take
PUBLISHED = {"resnet": 0.90, "vgg": 0.68}  # of linear, at 512 GPUs
ROUTERS, PRICE = 0.5, 0.75  # of a fat tree's, a rank: published
ABOUT = 0.1  # of those: reported "about"
PAPER = 1e-6  # of BytePS's time: rounding
CUT = 1e-3  # of it: buffers are cut into even pieces, so lengths differ a little


def races(seen: Seen, command: str) -> list[dict]:
    return some([row for row in seen[command].rows if row["table"] == "race"], "race")


def flat(seen: Seen) -> Finding:
    """Of the most bytes, a ring of the most ranks takes at most 1.15 of the fewest's.

    Latency, 2(p - 1) messages, is in that time: the buffer must be large.
    """
    rows = races(seen, "flat")
    most = max(row["bytes"] for row in rows)
    times = {row["p"]: row["ring_seconds"] for row in rows if row["bytes"] == most}
    few, many = min(times), max(times)
    ratio = times[many] / times[few]
    ours = f"{1e3 * times[few]:.1f} ms at p = {few}, {1e3 * times[many]:.1f} at {many}"
    return judged(ratio <= GROWS, ours, f"{ratio:.2f} times, {most / 2**20:g} MB")


def crossed(seen: Seen) -> Finding:
    """For every p butterfly is faster on the fewest bytes, the ring on the most."""
    found = {}
    for row in sorted(races(seen, "flat"), key=lambda row: row["bytes"]):
        ratio = row["ring_seconds"] / row["butterfly_seconds"]
        found.setdefault(row["p"], []).append(ratio)
    holds = all(ratios[0] > 1 > ratios[-1] for ratios in found.values())
    ours = ", ".join(f"p = {p}: {r[0]:.2f} to {r[-1]:.2f}" for p, r in found.items())
    return judged(holds, f"ring / butterfly {ours}", "asked above 1, then below")


def optimal(seen: Seen) -> Finding:
    """On real ranks a ring of n words sends exactly 2(p - 1)n, the least there is."""
    p = seen["words"].summary["p"]
    rows = [row for row in seen["words"].rows if row["algorithm"] == "ring"]
    sent = {row["bytes"] // 4: row["words_sent"] for row in some(rows, "ring")}
    holds = all(words == 2 * (p - 1) * n for n, words in sent.items())
    ours = ", ".join(f"{words:,} of {n:,}" for n, words in sent.items())
    return judged(holds, f"words sent: {ours}", f"p = {p}")


def scales(seen: Seen) -> Finding:
    """The published share of linear lies between ours in turn and ours overlapped.

    That for both networks, and ResNet-101's is above VGG-16's in turn.
    """
    turn, both = (
        {name: seen[name].summary[f"efficiency{way}_512"] for name in PUBLISHED}
        for way in ("", "_overlapped")
    )
    between = all(turn[name] <= PUBLISHED[name] <= both[name] for name in PUBLISHED)
    ours = ", ".join(f"{name} {turn[name]:.0%} to {both[name]:.0%}" for name in turn)
    holds = between and turn["resnet"] > turn["vgg"]
    return judged(holds, ours, "predicted by alpha, beta, gamma, in turn to overlapped")


def networks(seen: Seen) -> dict[str, dict]:
    """Return what the networks are made of, by name, of the most ranks."""
    rows = [row for row in seen["fabrics"].rows if row["table"] == "networks"]
    most = max(row["p"] for row in rows)
    return {row["network"]: row for row in rows if row["p"] == most}


def diameter(seen: Seen) -> Finding:
    """Slim Fly's diameter is 2, and no other network's is as small."""
    found = {name: row["diameter"] for name, row in networks(seen).items()}
    others = [hops for name, hops in found.items() if name != "slim_fly"]
    ours = ", ".join(f"{name} {hops}" for name, hops in found.items())
    return judged(found["slim_fly"] == 2 < min(others), ours, "hops between routers")


def routers(seen: Seen) -> Finding:
    """Slim Fly has at most 50 % of a fat tree's routers a rank, or 10 % more."""
    return beside(seen, lambda row: row["routers"] / row["ranks"], ROUTERS)


def price(seen: Seen) -> Finding:
    """Slim Fly costs at most 75 % of a fat tree a rank, or 10 % more."""
    return beside(seen, lambda row: row["cost_a_rank"], PRICE)


def beside(seen: Seen, number: Callable[[dict], float], published: float) -> Finding:
    found = networks(seen)
    ratio = number(found["slim_fly"]) / number(found["fat_tree"])
    ours = f"{ratio:.2f} of a fat tree's a rank, p = {found['slim_fly']['p']:,}"
    most = published * (1 + ABOUT)
    return judged(ratio <= most, ours, f"asked {most:.3g} at most")


def few_bytes(seen: Seen) -> Finding:
    """On few bytes no network's fastest all-reduce is faster than Slim Fly's."""
    rows = races(seen, "fabrics")
    few = min(row["bytes"] for row in rows)
    times = {row["network"]: row["seconds"] for row in rows if row["bytes"] == few}
    first = min(times, key=lambda name: times[name])
    ours = ", ".join(f"{name} {1e6 * one:.1f} us" for name, one in times.items())
    return judged(first == "slim_fly", ours, f"{first} is the fastest at {few:,} bytes")


def formula(seen: Seen) -> Finding:
    """Running ranks take the paper's time, to 1e-6, but for the pipeline's drain.

    With spare hosts that is 1 + 1/S of it, where S is the number of its stages.
    """
    rows = spares(seen)
    off = max(
        abs(row["bandwidth_seconds"] / row["paper_seconds"] / row["drained"] - 1)
        for row in rows
    )
    drained = max(row["drained"] for row in rows) - 1
    ours = f"off by {off:.0e}, {drained:.1%} of drain"
    return judged(off <= PAPER, ours, f"asked {PAPER:g}, for k = 0 ... {rows[-1]['k']}")


def interpolates(seen: Seen) -> Finding:
    """Every spare host makes it faster: from a ring's time to a parameter server's.

    k = n takes n/(2(n - 1)) of k = 0, but for the drain, to 0.1 %.
    """
    rows = spares(seen)
    times = [row["bandwidth_seconds"] / row["drained"] for row in rows]
    falls = all(b < a for a, b in zip(times, times[1:], strict=False))
    n, share = rows[0]["n"], times[-1] / times[0]
    wanted = n / (2 * (n - 1))
    holds = falls and rows[-1]["k"] == n and abs(share / wanted - 1) <= CUT
    return judged(holds, f"{share:.4f} of a ring's at k = {n}", f"asked {wanted:.4f}")


def spares(seen: Seen) -> list[dict]:
    rows = [row for row in seen["byteps"].rows if row["table"] == "byteps"]
    return sorted(rows, key=lambda row: row["k"])


NETWORKS = (
    Paper(
        "horovod",
        "Patarasuk & Yuan, Bandwidth Optimal All-reduce Algorithms, JPDC 2009; "
        "Sergeev & Del Balso, Horovod, 2018",
        "4 real ranks on {cores} cores and up to 256 virtual ones; 512 GPUs "
        "predicted, where 64 images take 0.48 s (ResNet-101) or 0.42 s (VGG-16) [M]",
        (
            Claim("a ring's time is independent of p for large n", "theorem", flat),
            Claim("a ring sends the least there is", "2(p - 1)/p n a rank", optimal),
            Claim("butterfly wins below the crossover", "theorem", crossed),
            Claim(
                "ResNet-101 scales, VGG-16 less",
                "90 % and 68 % of linear at 512 GPUs",
                scales,
            ),
        ),
        {
            "flat": Command(
                "topology.py",
                f"{FLAT} --p=16,64,256 --sizes=1KB,16KB,64MB",
                "",
                "--p=4,8 --sizes=64B,64MB",
            ),
            "words": Command(
                "allreduce.py",
                "--algorithms=ring --buffers=plain --sizes=4KB,4MB",
                "--repeats=1",
                "--repeats=1 --sizes=4KB --simulate=3",
                ranks=4,
            ),
            "resnet": Command(
                "scaling.py", f"{PORT} --parameters=44500000 --step_seconds=0.48"
            ),
            "vgg": Command(
                "scaling.py", f"{PORT} --parameters=138000000 --step_seconds=0.42"
            ),
        },
        "vgg/scaling.svg",
        (25, 20),
    ),
    Paper(
        "slim_fly",
        "Besta & Hoefler, Slim Fly: A Cost Effective Low-Diameter Network Topology, "
        "SC 2014",
        "virtual networks for 4096 ranks (1024 if quick) of 10,000 and more",
        (
            Claim("its diameter is 2", "2", diameter),
            Claim("fewer routers than a fat tree", "about 50 % [M]", routers),
            Claim("cheaper than a fat tree", "about 25 % [M]", price),
            Claim("a cheaper latency-bound all-reduce", "fewer hops", few_bytes),
        ),
        {
            "fabrics": Command(
                "topology.py",
                f"{FABRICS} {SCHEDULES} --p=4096 --sizes=16KB,64MB",
                "--p=1024 --sizes=4KB,64MB",
                "--p=16 --sizes=64B,64KB",
            )
        },
        "fabrics/topology.svg",
        (50, 15),
    ),
    Paper(
        "byteps",
        "Jiang et al., A Unified Architecture for Accelerating Distributed DNN "
        "Training in Heterogeneous GPU/CPU Clusters, OSDI 2020",
        "8 virtual hosts and up to 8 spare ones of 32, 4 MB",
        (
            Claim("t = 2n(n-1)M/((n^2+kn-2k)B)", "formula", formula),
            Claim("spare hosts: from ring to PS", "formula", interpolates),
            Claim(
                "BERT-large scales at 256 GPUs",
                "90 % of linear, all-reduce 70 %",
                never("256 GPUs on 32 hosts, whose CPUs add up, are not here"),
            ),
        ),
        {
            "byteps": Command(
                "topology.py",
                "--p=16 --networks=uniform --algorithms=ring --sizes=64KB --workers=8",
                "",
                "--workers=3 --p=4",
            )
        },
        "",
        (10, 10),
    ),
)
