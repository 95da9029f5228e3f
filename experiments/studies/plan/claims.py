"""Claims about published runs, judged by plan.py --validate."""

from lab.claims import Verdict, claim, verdict

from dml.runs.results import Run


def source_row(run: Run, name: str) -> dict:
    """Return the row of errors of a source."""
    return [r for r in run.rows if r["table"] == "errors" and r["source"] == name][0]


def skilled(run: Run, name: str, median: float, p90: float) -> Verdict:
    """Return the verdict that the errors of a source are small enough."""
    row = source_row(run, name)
    measured = f"{row['median_error']:.1%}, 90 % below {row['p90_error']:.1%}"
    null = f"{row['null_median_error']:.1%} and {row['null_p90_error']:.1%}"
    holds = row["median_error"] <= median and row["p90_error"] <= p90
    return verdict(holds, measured, f"a constant rate: {null}; {row['rows']} rows")


def ranked(run: Run, name: str) -> Verdict:
    """Return the verdict that all sweeps of a source are ranked."""
    rows = [r for r in run.rows if r["table"] == "sweeps" and r["source"] == name]
    if not rows:
        raise IndexError(f"no sweep of {name}")
    taus = ", ".join(f"{row['kendall_tau']:.2f}" for row in rows)
    regrets = ", ".join(f"{row['regret']:.1%}" for row in rows)
    holds = all(r["kendall_tau"] >= 0.7 and r["regret"] <= 0.03 for r in rows)
    return verdict(holds, f"tau {taus}", f"picked mesh slower by {regrets}")


@claim("seconds of Megatron-LM's runs are predicted", "138 to 163 Tflop/s per GPU")
def megatron(run: Run) -> Verdict:
    """Rows that were not fitted: median error at most 5 %, 90 % at most 16 %."""
    return skilled(run, "NVIDIA/Megatron-LM", 0.05, 0.16)


@claim("seconds of vTrain's runs are predicted", "8.4 % on a node, 14.7 % on 512 GPUs")
def vtrain(run: Run) -> Verdict:
    """Rows that were not fitted: median error at most 6 %, 90 % at most 20 %."""
    return skilled(run, "VIA-Research/vTrain", 0.06, 0.20)


@claim("meshes of vTrain are ranked", "Calculon: tau 0.92, 0.52, 0.37, 0.68")
def vtrain_ranked(run: Run) -> Verdict:
    """In each sweep tau is at least 0.7 and the picked mesh at most 3 % slower."""
    return ranked(run, "VIA-Research/vTrain")


@claim("seconds of BLOOM's candidates are predicted", "Calculon: 29 %")
def bloom(run: Run) -> Verdict:
    """Rows that were not fitted: median error at most 5 %, 90 % at most 12 %."""
    return skilled(run, "bigscience-workshop/bigscience", 0.05, 0.12)


@claim("meshes of BLOOM are ranked", "Calculon: tau 0.37, 0.17")
def bloom_ranked(run: Run) -> Verdict:
    """In each sweep tau is at least 0.7 and the picked mesh at most 3 % slower."""
    return ranked(run, "bigscience-workshop/bigscience")


@claim("the memory of BLOOM's candidates is predicted", "Calculon: 37 % too little")
def bloom_memory(run: Run) -> Verdict:
    """The median error is at most 10 % and all runs out of memory are found."""
    row = [r for r in run.rows if r["table"] == "memory"][0]
    holds = row["memory_median_error"] <= 0.1 and row["oom_found"] == row["oom_rows"]
    found = f"{row['oom_found']} of {row['oom_rows']} out of memory found"
    return verdict(holds, f"{row['memory_median_error']:.1%}, {found}", "all sources")


@claim("InternEvo's runs on 8 to 1,024 GPUs are predicted", "4,078 to 3,308 tokens/s")
def internevo(run: Run) -> Verdict:
    """Rows that were not fitted: 90 % have an error of at most 10 %."""
    return skilled(run, "InternLM/InternEvo", 0.05, 0.10)


MEGATRON = (megatron,)
VTRAIN = (vtrain, vtrain_ranked)
BLOOM = (bloom, bloom_ranked, bloom_memory)
INTERNEVO = (internevo,)
CLAIMS = MEGATRON + VTRAIN + BLOOM + INTERNEVO
