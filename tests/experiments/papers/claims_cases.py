"""Runs by command, of which a claim holds or fails."""

from pathlib import Path

from dml.runs.results import Run


def run(rows=(), summary=None, **flags):
    return Run(Path(), flags, {}, summary or {}, list(rows))


def rows(keys, *values):
    """Return rows of equal keys."""
    return [dict(zip(keys.split(), one, strict=True)) for one in values]


def table(name, keys, *values):
    return [row | {"table": name} for row in rows(keys, *values)]


def glove(losses=(0.041, 0.0412), shares=(0.049, 0.05), corpus="newsgroups"):
    ways = enumerate(zip(losses, shares, strict=True))
    keys = "strategy ranks loss analogy_accuracy"
    found = rows(keys, *(("serial", i, *way) for i, way in ways))
    return {"glove": run(found, corpus=corpus)}


WAYS = ("hogwild", "locked", "roundrobin")


def races(*speeds, cores=2, names=("svm",), workers=2, ways=WAYS):
    """Return races of hogwild, locked and round robin on problems."""
    keys = "kind problem strategy workers speedup"
    found = [
        ("race", name, way, workers, speed)
        for name, some in zip(names, speeds, strict=True)
        for way, speed in zip(ways, some, strict=False)
    ]
    return {"hogwild": run(rows(keys, *found), {"cores": cores})}


def delays(*ratios, takes=(0.2, 20.0, 2000.0)):
    keys = "kind strategy gradient_us speedup"
    found = [("delay", "hogwild", us, 2.0) for us in takes]
    both = zip(takes, ratios, strict=True)
    found += [("delay", "roundrobin", us, 2 * one) for us, one in both]
    return {"hogwild": run(rows(keys, *found))}


def trained(**changed):
    """Return trainings without offloading and in half of the memory."""
    keys = "method ranks steps counted_bytes peak_bytes orders capacity"
    found = rows(
        f"{keys} fraction predicted_bytes sha256",
        ("synchronous", 1, 4, 0, 0, 1, 100, 1.0, 0, "a"),
        ("belady", 1, 4, 8, 50, 1, 50, 0.5, 8, "a"),
    )
    found[1] |= changed
    return {"offload": run([row | {"table": "trained"} for row in found])}


def searched(best=10):
    keys = "case method draws best mean_ratio"
    found = ("equal: fetches", "belady", 10, best, 1.0), ("bytes", "belady", 10, 5, 1.1)
    return {"offload": run(table("searched", keys, *found))}


def swapped(throughput, above_bound=1.1):
    keys = "method network fraction capacity least throughput above_bound"
    found = [
        ("belady", "recomputed", 0.5, 100, 80, throughput, above_bound),
        ("belady", "saved", 0.5, 80, 80, 0.1, 2.0),
    ]
    return {"offload": run(table("virtual", keys, *found))}


def cyclades(*equal, ratios=(0.7, 0.8), steps=(0.2, 0.1), workers=2):
    found = rows("kind workers equal", *(("bits", "1,2", one) for one in equal))
    raced = zip(("svm", "cut"), ratios, strict=True)
    found += rows(
        "kind strategy workers problem to_hogwild",
        *(("race", "cyclades", workers, *one) for one in raced),
    )
    stepped = zip(("cyclades", "late 256"), steps, strict=True)
    keys = "kind problem workers strategy rate"
    found += rows(keys, *(("step", "svm", 1, *one) for one in stepped))
    return {"cyclades": run(found, {"cores": workers})}


def taus(times, idle=(0.49, 0.2, 0.01)):
    keys = "consistency delay seconds_to_target idle_share"
    names = ("ssp:0", "ssp:4", "ssp:16")
    ways = zip(names, ["slow"] * 3, times, idle, strict=True)
    return {"staleness": run(rows(keys, *ways))}


def keys(sifted=0.95, objective=0.56, words=100, recovery=0.1, lost=0):
    plain = {"objective": 0.56, "words_sent": 50}
    return {
        "filter": run(summary={"filtered_share": sifted, "objective": objective}),
        "plain": run(summary=plain),
        "uncached": run(summary={"words_sent": words}),
        "chain": run(
            summary={
                "recovery_seconds": recovery,
                "lost_updates": lost,
                "deaths": 3,
                "virtual": 0,
            }
        ),
    }


def softsync(fixed=0.9, damped=0.05, beyond=0.0):
    ends = {"fixed_error": fixed, "scaled_error": damped, "scaled_beyond_2n": beyond}
    summary = {f"15_softsync_{end}": value for end, value in ends.items()}
    first = {"1_softsync_fixed_error": 0.03, "1_softsync_scaled_error": 0.9}
    return {"softsync": run(summary=summary | first | {"hard_sync_error": 0.025})}


def bounded(ssp, essp, stale=(40.0, 9.0)):
    """Return runs of SSP and ESSP, all of which begin at an objective of 0.56."""
    keys = "delay consistency objective staleness_mean"
    found = rows(
        keys,
        ("slow", "ssp:10", ssp, stale[0]),
        ("slow", "ssp:2", 0.4, 1.0),  # s is a number, not a word
        ("slow", "ssp:0", 0.4, 0.0),
        ("slow", "bsp", 0.4, 0.0),
        ("slow", "essp:0", 0.4, 0.0),
        ("slow", "essp:10", essp, stale[1]),
    )
    return {"bounded": run([one | {"objective_at_start": 0.56} for one in found])}


def clocks(name, off):
    return {name: run(rows("barrier virtual_error", ("bounded", off), ("other", 0.0)))}


def downpour(adagrad, sgd, sync):
    times = {"downpour_adagrad": adagrad, "downpour_sgd": sgd, "sync_sgd": sync}
    times["sync_adagrad"] = None
    summary = {f"{way}_seconds_to_target": s for way, s in times.items()}
    return {"downpour": run(summary=summary)}


def coding(tail="fixed", repetition=39, cyclic=39, best=0.98, error=0.0):
    """Return a run in which ignoring reaches an AUC of 0.98 in 40 s, waiting in 80."""
    keys = "scheme auc curve_seconds curve_auc virtual_error"
    found = [("waiting", 0.98, [40, 80], [0.9, 0.98], 0.0)]
    found += [("ignoring", 0.9805, [20, 40], [0.9, 0.9805], error)]
    codes = {"repetition": repetition, "cyclic": cyclic}
    found += [
        (name, best, [10, time], [0.9, best], 0.0) for name, time in codes.items()
    ]
    either = [row | {"workers": n} for n in (10, 20) for row in rows(keys, *found)]
    return {"gradient_coding": run([row | {"tail": tail} for row in either])}


def lagged(vtrace=390.0, one_step=300.0, epsilon=100.0, none=50.0, seeds=4):
    """Return a run whose corrections have a return of 400 without lag."""
    keys = "correction lag mean_return mean_return_error seeds"
    late = {"vtrace": vtrace, "one_step": one_step, "epsilon": epsilon, "none": none}
    found = [(name, 0, 400.0, 5.0, seeds) for name in late]
    found += [(name, 16, value, 10.0, seeds) for name, value in late.items()]
    return {"policy_lag": run(rows(keys, *found))}


def replayed(uniform=850, one_epsilon=700, fewer_actors=900, seeds=5):
    """Return a run of Ape-X whose median is 500 updates."""
    medians = {"apex": 500, "uniform": uniform, "one_epsilon": one_epsilon}
    medians["fewer_actors"] = fewer_actors
    found = [
        (name, [middle - 90, middle, middle + 100, None, 20][:seeds])
        for name, middle in medians.items()
    ]
    made = run(rows("method updates_by_seed", *found))
    return {"apex": made._replace(flags={"updates": 2000, "environment": "catch"})}


def workers(seconds=(80.0, 40.0, 10.0), frames=(80e3, 80e3, 90e3), seeds=3):
    """Return a run of A3C with 1, 2 and 8 workers."""
    keys = "workers seconds frames seeds"
    found = zip((1, 2, 8), seconds, frames, [seeds] * 3, strict=True)
    return {"a3c": run(rows(keys, *found))}


def traffic_of(first=50.0, second=10.0, updates=40, widths="256,256"):
    """Return two runs with these words per frame, of 800 steps."""

    def one(words):
        summary = {"environment_steps": 800, "words_sent": 800 * words}
        return run(summary=summary | {"steps": updates}, widths=widths)

    return one(first), one(second)


def inference(**values):
    return dict(zip(("impala", "seed"), traffic_of(**values), strict=True))


def sizes_of_model(second=50.4, **values):
    runs = traffic_of(second=second, **values)
    return dict(zip(("small", "seed"), runs, strict=True))


def speeds(a3c=3e3, impala=9e3, frames=60e3):
    found = {"a3c": a3c, "fast": impala}
    return {
        name: run(summary={"frames_per_second": speed, "frames": frames})
        for name, speed in found.items()
    }


def stragglers(ten=6.9, thousand=16.0, measured=1.1):
    keys = "barrier workers maxplus measured virtual"
    found: list[tuple] = [("synchronous", 10, ten, None, 1.0)]
    found += [("synchronous", 1000, thousand, None, 1.0)]
    found += [("k of p", 8, 1.0, measured, 1.0)]
    law = {"law": "shifted_exponential:1,0.5"}
    other = law | {"law": "pareto:2,3", "barrier": "synchronous", "workers": 10}
    other |= {"maxplus": 99.0, "measured": None}
    return {"stragglers": run([one | law for one in rows(keys, *found)] + [other])}


def recovered(groups_of_2=14 / 15, sampled=0.933):
    found = [
        ("groups", 2, groups_of_2, sampled),
        ("groups", 3, 0.8, 0.801),
        ("ring", 2, 13 / 15, 0.866),
    ]
    keys = "placement failures probability sampled"
    common = {"machines": 16, "copies": 2, "draws": 100_000}
    return {
        "checkpoints": run([row | common for row in table("recovery", keys, *found)])
    }


def intervals(error=0.002, least=1.0, above=0.001):
    keys = "factor sampled sampled_error virtual_error"
    found = table(
        *("intervals", keys, (least, 1.2, 0.001, error), (2.0, 1.3, 0.0, -0.001))
    )
    keys = "formula interval above_best"
    found += table("formulas", keys, ("Young", 657, above), ("exact", 618, 0.0))
    return {"checkpoints": run(found)}


def saves(overhead=0.034, error=0.005):
    keys = "mode overhead error interval megabytes"
    found = [("background", overhead, error, 2.0, 5.0)]
    found += [("synchronous", 0.036, 0.001, 3.0, 5.0)]
    return {"checkpoints": run(table("overhead", keys, *found))}


def rings(many=1.05, few=4.0, most=0.5, most_bytes=1 << 26):
    keys = "p bytes ring_seconds butterfly_seconds network"
    found = [(p, 64, few, 1.0) for p in (16, 256)]
    found += [(16, most_bytes, 1.0, 1 / most), (256, most_bytes, many, many / most)]
    found = [(*one, "uniform") for one in found] + [(256, 64, 9.0, 1.0, "torus")]
    return {"flat": run(table("race", keys, *found))}


def words(sent, check=False):
    found = rows("algorithm bytes words_sent", ("ring", 4096, sent), ("tree", 4096, 1))
    return {"words": run(found, {"p": 4}, dtype="float32", check=check)}


def scaling(resnet=(0.86, 1.0), vgg=(0.65, 1.0)):
    keys = "efficiency_512 efficiency_overlapped_512"
    both = {"resnet": resnet, "vgg": vgg}
    return {name: run(summary=rows(keys, one)[0]) for name, one in both.items()}


def fabrics(flown=(2, 500, 1300.0, 1.0), tree=(4, 1100, 2150.0, 2.0)):
    keys = "network p ranks diameter routers cost_per_rank"
    both = {"slim_fly": flown, "fat_tree": tree}
    built = [(name, 4096, 5000, *one[:3]) for name, one in both.items()]
    built += [("hosts", 4096, 5000, 2, 1, 9.0)]  # whose switch has all ports
    both |= {"hosts": (2, 1, 9.0, 0.1)}
    sizes = (64, 1024)
    raced = [(name, 4096, n, one[3]) for name, one in both.items() for n in sizes]
    found = table("race", "network p bytes seconds", *raced)
    return {"fabrics": run(table("networks", keys, *built) + found)}


def tori(swing=0.9, halving=1.2, trivance=1.5, words=30):
    """Return an all-reduce of two buffers on a torus: seconds of each algorithm."""
    seconds = {"ring": 1.1, "butterfly": 3.0, "halving_doubling": halving}
    seconds |= {"torus": 1.0, "swing": swing, "trivance": trivance}
    keys = " ".join(
        ["network p bytes trivance_words", *(f"{k}_seconds" for k in seconds)]
    )
    found = [
        ("torus:4x4", 16, n, words * n // 4, *seconds.values()) for n in (64, 1024)
    ]
    return {"torus": run(table("race", keys, *found))}


def jobs(saved=(0.16, 0.18), most=0.3, worse=0.02, gain=1.1):
    keys = "network p bytes algorithm allocations saved most_saved worse gain"
    networks = zip(("dragonfly:2", "fat_tree"), saved, strict=True)
    found = [
        (name, 64, 4096, "swing", 50, one, most, worse, gain) for name, one in networks
    ]
    return {"jobs": run(table("allocations", keys, *found))}


def byteps(first=7.34, last=4.2, drained=1.0):
    keys = "n k paper_seconds bandwidth_seconds drained"
    paper = (7.34, 5.0, 7.34 * 8 / 14)
    found = [(8, 0, paper[0], first, 1.0), (8, 4, paper[1], paper[1] * 1.01, 1.01)]
    found += [(8, 8, paper[2], last if drained == 1 else paper[2] * drained, drained)]
    return {"byteps": run(table("byteps", keys, *found))}


def spare_ranks(*ratios, exact=True, seconds=(0.4, 0.36)):
    """Return BytePS on throttled ports: (2, 0), (2, 1), (3, 0) and (3, 1)."""
    keys = "links n k ratio exact seconds"
    worlds = [(2, 0, 0.3), (2, 1, 0.3), (3, 0, seconds[0]), (3, 1, seconds[1])]
    found = [
        ("throttled", n, k, ratio, exact, took)
        for (n, k, took), ratio in zip(worlds, ratios, strict=True)
    ]
    found.append(("machine", 2, 0, 9.0, True, 0.1))
    return {"ranks": run(table("spares", keys, *found))}


def hub(fusion=1.6, raw=0.8, copy=0.8, exact=True):
    keys = "p bytes chunk_kb fusion raw_share copy_share exact"
    keys += " speedup passes_seconds chunks_seconds"
    found = [(2, 1 << 22, 32, fusion, raw, copy, exact, 3, 3e-4, 2e-4)]
    for p, nbytes, chunk_kb in (4, 1 << 22, 32), (2, 1 << 20, 32):
        found.append((p, nbytes, chunk_kb, 9, 9, 9, True, 9, 1, 1))
    found.append((2, 1 << 22, 4, 0.1, 0.1, 0.1, True, 0.1, 1, 1))
    return {"hub": run(table("hub", keys, *found))}


SLIGHTLY_MORE = (0.022, 0.024, 0.022, 0.023, 0.024)  # than the baseline, by each seed


def warmups(seeds=5, **errors):
    known = {"baseline": (0.02, 0.022, 0.021, 0.02, 0.022)}
    known |= {"gradual": (0.021, 0.02, 0.022, 0.02, 0.022)}
    known |= {"none": (0.03, 0.032, 0.03, 0.031, 0.032)}
    known |= {"constant": (0.031, 0.03, 0.033, 0.031, 0.032)}
    known |= {"unscaled": (0.05, 0.052, 0.055, 0.051, 0.053)}
    found = [
        (way, 1 if way == "baseline" else 16, some[:seeds])
        for way, some in (known | errors).items()
    ]
    return {"batches": run(rows("warmup workers errors", *found), large=16)}


def epochs(*steps):
    """Return by workers 1, 2, 4, ... the steps to the target; None: never."""
    keys = "workers warmup steps_to_target"
    found = [(2**i, "gradual", one) for i, one in enumerate(steps)]
    found += [(2**i, "none", one and 2 * one) for i, one in enumerate(steps) if i]
    return {"batches": run(rows(keys, *found))}


def accuracies(*errors):
    found = [
        ("gradual" if i else "baseline", 2**i, [error, error])
        for i, error in enumerate(errors)
    ]
    return {"batches": run(rows("warmup workers errors", *found), large=2)}


def sizes(diverse, repeated, bounds=(16, 4)):
    """Return examples that batches of 1, 4, 16 and 64 take, and diversity's bounds."""
    keys = "data batch examples steps bound_least"
    both = zip(("diverse", "repeated"), (diverse, repeated), bounds, strict=True)
    found = [
        (name, batch, one, one and one // batch, bound)
        for name, some, bound in both
        for batch, one in zip((1, 4, 16, 64), some, strict=True)
    ]
    return {"sizes": run(rows(keys, *found))}


def grid(*virtual, formula=(1.6, 1.9), uneven=1.1, first=None):
    keys = "stages microbatches published virtual formula"
    found = [] if first is None else [(2, 1, 1.0, first, 1.0)]
    cells = zip((4, 32), (1.7, 1.8), virtual, formula, strict=True)
    found += [(2, *cell) for cell in cells]
    cuts = table("imbalance", "published bound virtual", (1.21, 1.25, uneven))
    return {"pipeline": run(table("grid", keys, *found) + cuts)}


def zero_bubble(h1=1.0, memory=4, h2=0.0, folded=0.0, bits=(1, 1), wrong=1e-7):
    keys = "durations schedule piece_seconds in_flight bubble run"
    name, pieces = "F = B = W", [1.0, 1.0, 1.0]
    found = table(
        "zero_bubble",
        keys,
        (name, "1f1b", pieces, 4, 3.0, 3.0),
        (name, "zb_h1", pieces, memory, h1, h1),
        (name, "zb_h2", pieces, 2 * memory - 1, 1.0, h2),
        (name, "zb_v", pieces, memory, 0.5, folded),
    )
    keys = "schedule bits_of_1f1b difference"
    cells = [("zb_h1", bits[0], wrong), ("zb_v", bits[1], wrong)]
    found += table("measured", keys, ("gpipe", 0, 0.0), *cells)
    return {"pipeline": run(found)}


def validated(saved=0.1, same=True, clipped=2):
    keys = "schedule saved same_bits clipped_updates"
    cells = [("1f1b", 0.0, True, 0), ("zb_h2", saved, same, clipped)]
    return {"pipeline": run(table("post_validation", keys, *cells))}


def tensor(count=4, sent=100):
    names = ("collectives", "bytes", "formula_bytes")
    found = zip(names, (count, sent, 100), strict=True)
    return {"tensor": run(summary={f"block_{name}_2": one for name, one in found})}


def shapes(billions=1.56, gigabytes=24.9):
    keys = "model billions published_billions gigabytes published_gigabytes"
    found = table("lecture", keys, ("gpt2", billions, 1.5, gigabytes, 24))
    return {"memory": run(found)}


def bert(minutes=236.0, shares=(0.88, 0.87), error=0.05):
    keys = "job minutes_256 efficiency_1024 efficiency_1472 error_1024 error_1472"
    found = [("published", minutes, *shares, 0, 0), ("ring", 236, 0.7, 0.6, 0.2, -0.5)]
    found += [("two levels", 236, 0.9, 0.9, -error, 0.01)]
    return {"scaling": run(table("bert", keys, *found))}


def carbon(worst=0.001, exact=9):
    summary = {"strubell_worst_error": worst, "strubell_exact": exact}
    return {"carbon": run(summary=summary | {"strubell_cells": 9})}


def published(name, median=0.02, p90=0.05, tau=0.9, found=4):
    """Return rows of plan.py --validate for one source."""
    keys = "source rows median_error p90_error null_median_error null_p90_error"
    errors = table("errors", keys, (name, 9, median, p90, 0.08, 0.2))
    sweeps = table("sweeps", "source kendall_tau regret", (name, tau, 0.01))
    keys = "memory_median_error oom_found oom_rows"
    return {"plan": run(errors + sweeps + table("memory", keys, (0.05, found, 4)))}


def late(*longest):
    """Return rows of two problems and rates, each by the longest tolerated delay."""
    places = [("a", 1.0), ("a", 2.0), ("b", 1.0), ("b", 2.0)]
    found = [
        (*place, tau, 1.0 if tau <= most else 2.1)
        for place, most in zip(places, longest, strict=True)
        for tau in (0.0, 1.0, 2.0)
    ]
    return rows("problem rate tau error", *found)


def delayed(*longest):
    return {"asynchrony": run(late(*longest))}


SIMILAR = {"accuracy": 0.95, "accuracies": [0.94, 0.95, 0.96], "megabytes_per_epoch": 1}
SIMILAR |= {"loss": 0.1, "held_out_loss": 0.1, "first_loss": 2.0, "step_seconds": 4e-4}
SIMILAR |= {"ratio": 1.0, "last_ratio": 1.0}


def compressed(name="digits", seeds=3, **by_reducer):
    """Return a run of compressed.py; `by_reducer` has the numbers that differ."""
    found = [
        {"reducer": REDUCERS.get(one, one)} | SIMILAR | own
        for one, own in ({"exact": {}} | by_reducer).items()
    ]
    return {name: run(found, seeds=seeds, gbps=10, ranks=4)}


REDUCERS = {
    "qsgd": "qsgd:4",
    "plain": "power_sgd:2",
    "low": "power_sgd:2+feedback",
    "top": "top_k:0.001+feedback",
    "random": "random_k:0.05+feedback",
    "fed": "sign+feedback",
    "dgc": "dgc:0.001",
    "adam": "one_bit_adam:60",
}


def counterexamples(sign, fed):
    """Return runs of the three problems with the losses at the end."""
    runs = {}
    for name in ("first", "second", "third"):
        own = {"sign": {"held_out_loss": sign}, "fed": {"held_out_loss": fed}}
        runs |= compressed(name, **own)
    return runs


def bounded_codes(bits, error, trials=100):
    """Return a run of quantization.py with shares of the bounds."""
    names = ("bits", "error", "nonzero")
    bounds = {f"{name}_bound": 2.0 for name in names}
    shares = {"bits": 2 * bits, "error": 2 * error, "nonzero": 1.0}
    return {"theorems": run([{"table": "theorem"} | bounds | shares], trials=trials)}


def setups(paying, ranks=30):
    """Return a run of crossover.py with 10 bandwidths, of which 9 are fast."""
    own = {"table": "crossover", "gbps": [1, *range(10, 100, 10)]}
    own |= {"ranks": list(range(ranks)), "examples": 64}
    alone = own | {"examples": 0, "paying": [ranks] * 10}
    return {"setups": run([own | {"paying": [ranks, paying] + [0] * 8}, alone])}


def shards(strategy, iid, by_label, seeds=5):
    """Return a run of shuffling.py with accuracies at Q = 0, 0.1 and 1."""
    found = [
        {
            "strategy": strategy,
            "shards": kind,
            "fraction": fraction,
            "accuracies": [accuracy + 0.001 * seed for seed in range(seeds)],
        }
        for kind, accuracies in (("iid", iid), ("sorted", by_label))
        for fraction, accuracy in zip((0, 0.1, 1), accuracies, strict=True)
        if accuracy is not None
    ]
    return {"shards": run(found)}


def traffic(*rows):
    """Return a run of shuffling.py; a row has Q, ratio, formula, sent, compression."""
    own = {"strategy": "local", "shards": "iid", "parity": 6.0}
    keys = ["fraction", "ratio", "formula", "examples_sent", "compression"]
    return {"shards": run([own | dict(zip(keys, row, strict=True)) for row in rows])}


def attacked(seeds=3, name="attacked", **cases):
    """Return a run of byzantine.py with f = 0, 1, 4: accuracies of each rule."""
    found = [
        {"skew": "iid", "rule": rule.replace("_nnm", "+nnm"), "attack": "alie"}
        | {f"accuracy_{f}": value for f, value in zip((0, 1, 4), values, strict=True)}
        | {"accuracies": {"0": [], "1": [], "4": []}}
        for rule, values in cases.items()
    ]
    return {name: run(found, seeds=seeds, honest=10, skews="iid")}


CODED = ("clean", "opposed", "nan", "little")


def coded(*losses, names=CODED, accuracy=0.9):
    """Return runs of train.py by their second loss; the first loss is 1."""
    pairs = zip(names, losses, strict=True)
    return {
        name: run([{"loss": 1.0}, {"loss": loss}], {"accuracy": accuracy}, attack=name)
        for name, loss in pairs
    }


def uncoded(accuracy):
    return coded(0.5, names=["uncoded"]) | coded(
        0.5, names=["broken"], accuracy=accuracy
    )


def restarts(**taken):
    """Return Moshpit's table at 512 and 768 peers; the key is rounds of a method."""
    published = {"all_reduce": 1.0, "gossip": 50.0, "sgp": 47.6}
    published |= {"random_groups": 6.1, "moshpit": 8.2, "one_peer_exponential": None}
    ours = published | {"one_peer_exponential": 9.0, "other": 49.0} | taken
    found = [
        (method, peers, absence, known, ours[method])
        for peers in (512, 768)
        for absence in (0.0, 0.01)
        for method, known in published.items()
    ]
    keys = "method peers absence published_1e-9 rounds_1e-9"
    made = table("printed", keys, *found)
    for row in made:
        if row["method"] == "all_reduce" and row["absence"]:
            row["rounds_1e-9"] = row["published_1e-9"] = ours.get("absent", 41.7)
        if row["method"] == "one_peer_exponential" and row["peers"] == 768:
            row["rounds_1e-9"] = ours["other"]
    return {"averaging": run(made, restarts=taken.get("restarts", 10))}


def contractions(*measured):
    """Return measured contractions, whose formulas give 0.4037 and 0.469."""
    found = [("chosen", 16, 8, one, 0.001, 0.4037, 0.469) for one in measured]
    found += [("equal", 16, 8, 0.1, 0.001, 0.4667, 0.469)]
    keys = "kind peers groups measured error exact published"
    return {"averaging": run(table("contractions", keys, *found))}


def teapots(last, second=9.7e-4):
    found = [(1024, 0.0, 0, 1.0, 1.0, 4), (1024, 0.0, 1, 0.031, 0.0303, 4)]
    found += [(1024, 0.0, 2, second, 9.7e-3, 4)] if second != 9.7e-4 else []
    found += [(1024, 0.0, 3, last, 0.0, 4), (1024, 0.1, 1, 0.9, 0.13, 4)]
    keys = "peers absence round variance exact restarts"
    return {"averaging": run(table("teapots", keys, *found))}


def replicas(slower=5.0, **accuracies):
    """Return accuracies on random and skewed shards; synchronous takes longer."""
    skews = ("similarity:1", "dirichlet:0.01")
    values_of_rows = [
        (name, name, skew, accuracy, accuracy, slower if name == "synchronous" else 1.0)
        for name, values in accuracies.items()
        for skew, accuracy in zip(skews, values, strict=True)
    ]
    keys = "strategy name skew accuracy each seconds"
    return {"decentralised": run(rows(keys, *values_of_rows), steps=240, seeds=3)}


def exchanges(*methods, more=1.0):
    """Return rows of period, loss, reducer, fragments and delay; H = 0: synchronous.

    Args:
        methods: values of the rows, the last ones optional.
        more: factor of the bytes and the peak of the last row.
    """
    values_of_rows = []
    for number, (period, loss, *others) in enumerate(methods, 1):
        reducer, fragments, delay = [*others, *("exact", 1, 0)[len(others) :]]
        name = f"{period} {reducer} {fragments} {delay}" if period else "synchronous"
        factor = more if number == len(methods) else 1.0
        sent, peak = factor * 2**20 / (period or 1), factor * 2**20 / fragments
        values_of_rows.append(
            (name, period, reducer, fragments, delay, loss, sent, peak)
        )
    keys = "name period reducer fragments delay loss bytes_sent peak_bytes"
    return {"diloco": run(rows(keys, *values_of_rows), ranks=4, steps=512, seeds=3)}


def factors(counted=(3.67, 33.55, 58.72), server=8, hybrid=7.9, filters="allreduce"):
    """Return rows of sufficient_factors.py.

    Args:
        counted: counted words of the three roles, in millions.
        server: millions of words of servers; the hybrid has 2.
        hybrid: speed-up of the hybrid; that of servers is 6.2.
        filters: exchange of a convolution.
    """
    keys = "counted published"
    pairs = zip(counted, (3.7, 34, 58.7), strict=True)
    found = table("example", keys, *(tuple(1e6 * n for n in pair) for pair in pairs))
    keys = "network kind layer nodes both apart"
    found += table(
        "layers",
        keys,
        (
            "vgg19",
            "convolution",
            "conv1",
            [2, 8],
            ["allreduce", filters],
            ["server"] * 2,
        ),
        ("vgg19", "dense", "fc6", [2, 8], ["factors"] * 2, ["factors"] * 2),
    )
    keys = "network gbps scheme words_sent speedup nodes"
    cells = [("server", server, 6.2), ("allreduce", 8, 6.6), ("factors", 2, 7.9)]
    cells += [("hybrid", 2, hybrid)]
    cells = [("vgg19", 10, name, 1e6 * sent, up, 8) for name, sent, up in cells]
    return {"factors": run(found + table("throughput", keys, *cells))}


def kfac(sha256="a", sent=70, nbytes=40, updates=50, seconds=1.0):
    """Return rows of kfac.py.

    Args:
        sha256: hash of the training with fraction 1 on two ranks.
        sent: words sent by it; 70 are predicted, and 90 are sent with fraction 1/2.
        nbytes: bytes of its state; 40 are predicted, and 30 stored with fraction 1/2.
        updates: updates of K-FAC; Adam needs 100.
        seconds: seconds of an update of K-FAC; those of others take 1.
    """
    keys = "ranks fraction words_sent predicted_words state_bytes predicted_bytes"
    fractions = table(
        "fraction",
        f"{keys} sha256",
        (2, 0.5, 90, 90, 30, 30, "a"),
        (2, 1.0, sent, 70, nbytes, 40, sha256),
    )
    losses = table(
        "training",
        "name update_seconds updates_0.1",
        ("adam", 1.0, 120),
        ("adam", 1.0, 100),
        ("momentum", 1.0, None),
        ("kfac", seconds, updates),
        ("kfac", seconds, None),
    )
    return {"kfac": run(fractions + losses)}


def owners(sha256="a", sent=110, state=50):
    """Return rows of owners.py.

    Args:
        sha256: hash of Muon's owned training on two ranks.
        sent: words sent by it; 100 are predicted, and 10 for the clip.
        state: bytes of Muon's state on one rank; AdamW's is 100.
    """
    keys = "optimizer strategy reducer ranks words_sent predicted clip_words"
    keys += " state_bytes sha256"
    return {
        "owners": run(
            table(
                "training",
                keys,
                ("muon", "owned", "order_free", 1, 0, 0, 0, state, "a"),
                ("muon", "owned", "order_free", 2, 120, 100, 10, 30, sha256),
                ("muon", "owned", "exact", 2, sent, 100, 10, 30, "b"),
                ("adamw", "owned", "exact", 1, 0, 0, 0, 100, "c"),
            )
        )
    }


def boosting(few=0.8785, stored=2.0, vote=110, lower=0.001, sent=10):
    """Return areas and words of boosting by number of bins, and with votes.

    Args:
        few: area with 20 bins; 0.88 with a bin for each value.
        stored: additions to histograms of stored values; 100 of all values.
        vote: words of a vote with twice the columns; 100 of the others.
        lower: difference of the areas of all columns and of a vote.
        sent: words of a vote for a word of all columns, in hundredths.
    """
    found = table("bins", "bins auc", (20, few), (250, 0.88))
    found += table("splits", "stored_additions all_additions", (stored, 100.0))
    found += table(
        "votes",
        "columns split words auc",
        (9, "rows", 10_000 / sent, 0.8),
        (9, "vote", 100, 0.8 - lower),
        (18, "rows", 20_000 / sent, 0.8),
        (18, "vote", vote, 0.8),
    )
    return {"splits": run(found)}


def dimensions(difference=1e-12, ratio=7.0, best=40, times=60.0, words=9):
    """Return steps, sizes and gaps of linear models on columns.

    Args:
        difference: of the parameters of s-step from those of single steps.
        ratio: of the seconds of single steps on sparse data to those of s steps.
        best: best s b; 45 by the formula.
        times: seconds of SGD on rows over those of ProxCoCoA+.
        words: words of ProxCoCoA+; SGD on rows sends 10.
    """
    seconds = "p seconds_b1_s1_g1 seconds_b1_s8_g1 seconds_b8_s8_g1"
    found = table("dense", seconds, (1, 1.0, 1.0, 0.1), (2, 1.0, 0.5, 0.1))
    found += table("sparse", seconds, (1, 1.0, 1.0, 0.1), (2, ratio, 1.0, 0.1))
    found += table("best_sizes", "formula simulated", (45.0, best))
    found += table(
        "reached",
        "method p rounds words seconds reached",
        ("ProxCoCoA+, columns", 8, 2, words, 1.0, True),
        ("SGD, rows", 8, 3, 10, times, True),
    )
    return {"dimensions": run(found, {"difference": difference})}
