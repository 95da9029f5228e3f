"""Vision and BERT as commands: what they leave, what they refuse, how they go on."""

import shutil
from types import SimpleNamespace

import bert
import gpt
import jax
import numpy as np
import pytest
import vision
from lab import compiling, flags
from studies.deep import flags as deep_flags
from studies.deep import preparation
from studies.deep import training as deep

from dml import sim
from dml.data.text.generated import generate
from dml.extend import load
from dml.runs import results
from dml.strategies.loops import bucket_sums
from dml.types import BadInput, Step
from dml.update import dense
from dml.update.dense import make
from tests.experiments.run_folder import check_folder, read_rows

pytestmark = pytest.mark.usefixtures("quick")
SMALL = ["--data=digits", "--model=mlp", "--batch=48", "--steps=6", "--timeline=0"]


@pytest.fixture
def plain(undrawn, tmp_path, monkeypatch):
    """Keep data apart; draw nothing, keep no program: both are tested elsewhere."""
    monkeypatch.setenv("DML_DATA", str(tmp_path / "cache"))
    monkeypatch.setattr(compiling, "enable_cache", lambda: None)


@pytest.fixture
def corpus_flags(tmp_path):
    """Return the flags of a small corpus."""
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join(generate(60, 400, seed=1)))
    return [f"--corpus={path}", "--vocabulary=300", f"--out={tmp_path / 'run'}"]


@pytest.fixture
def see(plain, tmp_path):
    """Return see(*flags) -> the first rank's summary."""

    def run(*argv, out="run"):
        return vision.main(["vision.py", *SMALL, f"--out={tmp_path / out}", *argv])[0]

    run.path = tmp_path
    return run


def test_a_run_leaves_what_sweeps_read(see, tmp_path):
    summary = see()
    keys = {"loss", "accuracy", "steps", "images_per_second", "seconds", "words_sent"}
    assert keys | {"params_sha256", "first_step_seconds"} <= summary.keys()
    check_folder(tmp_path / "run", summary)
    assert [row["step"] for row in read_rows(tmp_path / "run")] == [1, 2, 3, 4, 5, 6]


@pytest.fixture
def interrupt(see, monkeypatch):
    """Return interrupt(*flags) -> the summary of a run that is asked to stop."""

    def run(*argv):
        asked = iter([False] * 4 + [True] * 9)  # twice before the steps, once each
        learn = deep.train_rank

        def impatient(values, comm, path, _, task):
            return learn(values, comm, path, lambda: next(asked), task)

        with monkeypatch.context() as patch:
            patch.setattr(deep, "train_rank", impatient)
            with pytest.raises(
                flags.Stopped, match=r"stopped after update \d of \d+; to res"
            ):
                see("--save_every=1e-9", *argv, out="stopped")
            return results.read_object(see.path / "stopped" / "summary.json")

    return run


@pytest.fixture
def stopped(interrupt, tmp_path):
    """Train two steps of six, in three checkpoints' place, and stop."""
    assert interrupt()["steps"] < 6
    return tmp_path / "stopped"


def test_a_stopped_run_goes_on_bit_for_bit_on_other_ranks_too(see, stopped):
    whole = see(out="whole")
    copy = stopped.with_name("copy")
    shutil.copytree(stopped, copy)
    again = vision.main(["vision.py", *SMALL, f"--resume={stopped}"])[0]
    assert again["params_sha256"] == whole["params_sha256"]
    assert [row["step"] for row in read_rows(stopped)] == [1, 2, 3, 4, 5, 6]
    three = vision.main(["vision.py", *SMALL, f"--resume={copy}", "--simulate=3"])[0]
    assert three["loss"] == pytest.approx(whole["loss"], rel=1e-4)


def test_logical_shards_have_equal_bits_on_other_numbers_of_ranks(see):
    flags = ["--reduce=order_free", "--shards=4", "--batch=16"]
    one, *others = (see(*flags, f"--simulate={p}", out=f"p{p}") for p in (1, 3, 4))
    for other in others:
        assert other["params_sha256"] == one["params_sha256"]
        assert other["loss"] == one["loss"]


@pytest.mark.parametrize("strategy", ["synchronous", "local", "mesh"])
def test_a_run_that_ends_before_its_summary_is_finished(see, strategy):
    argv = [f"--strategy={strategy}", "--save_every=60"]
    whole = see(*argv)
    place = see.path / "run"
    with pytest.raises(BadInput, match="the run is complete: start another"):
        see(*argv, f"--resume={place}")
    (place / "summary.json").write_text('{"status": "interrupted"}')
    rows = (place / "metrics.jsonl").read_text()
    again = see(*argv, f"--resume={place}")
    for name in ("loss", "accuracy", "steps", "params_sha256"):
        assert again[name] == whole[name]
    assert (again["examples"], again["seconds"]) == (0, 0)
    assert (place / "metrics.jsonl").read_text() == rows
    assert (place / "summary.json").exists()


def test_a_run_with_constant_rates_is_extended_and_others_are_not(see, tmp_path):
    constant = ["--schedule=constant", "--warmup_steps=2"]
    whole = see(*constant, "--steps=6", out="whole")
    see(*constant, "--steps=4")
    resume = f"--resume={tmp_path / 'run'}"
    with pytest.raises(BadInput, match="is complete: pass a larger --steps"):
        vision.main(["vision.py", resume])
    again = vision.main(["vision.py", resume, "--steps=6"])[0]
    assert again["params_sha256"] == whole["params_sha256"]
    assert [row["step"] for row in read_rows(tmp_path / "run")] == [1, 2, 3, 4, 5, 6]
    see("--steps=4", out="cosine")
    argv = ["vision.py", f"--resume={tmp_path / 'cosine'}", "--steps=6"]
    with pytest.raises(BadInput, match="expected --steps=4 .*; only a run of --steps"):
        vision.main(argv)


def test_what_goes_on_is_bound_to_no_device_so_that_meshes_can_take_it(
    stopped, monkeypatch
):
    begin, found = preparation.start_or_resume, []
    monkeypatch.setattr(
        preparation, "start_or_resume", lambda *a: found.append(begin(*a)) or found[0]
    )
    vision.main(["vision.py", *SMALL, f"--resume={stopped}", "--strategy=mesh"])
    leaves = jax.tree.leaves(found[0][1:])
    assert leaves and not any(leaf.committed for leaf in leaves)


def test_local_steps_are_counted_averaged_and_timed_as_what_they_are(
    see, interrupt, capsys
):
    ways = ["--strategy=local", "--local_every=4", "--local_after=3", "--steps=12"]
    ways.append("--simulate=2")
    whole = see(*ways)
    says = capsys.readouterr().out  # three alone, two of four, and one that is left
    assert "step 6/6" in says and "step 7/" not in says
    assert interrupt(*ways)["steps"] == 2  # by two ranks, of three steps alone
    argv = ["vision.py", *SMALL, *ways, f"--resume={see.path / 'stopped'}"]
    assert vision.main(argv)[0]["params_sha256"] == whole["params_sha256"]


OWN = """
from dml.strategies.decentral.diloco import diloco

SEEN = {}

def train(problem, batches, update, *, comm, timer, reducer, outer_every, outer_lr,
          momentum=0.5, state=None, memory=None):
    SEEN.update(outer_every=outer_every, momentum=momentum)
    return diloco(problem, batches, update, comm=comm, timer=timer, reducer=reducer,
                  outer_every=outer_every, outer_lr=outer_lr, outer_momentum=momentum,
                  state=state, memory=memory)
"""


def test_a_strategy_of_a_user_receives_flags_and_options_by_name(see):
    (see.path / "mine.py").write_text(OWN)
    own = f"--strategy={see.path / 'mine.py'}:train"
    flags = ["--simulate=2", "--outer_every=3"]
    mine = see(own, *flags, "--options=momentum=0.25")
    assert load(own.partition("=")[2]).__globals__["SEEN"] == {
        "outer_every": 3,
        "momentum": 0.25,
    }
    same = see("--strategy=diloco", *flags, "--outer_momentum=0.25", out="same")
    assert mine["params_sha256"] == same["params_sha256"]
    with pytest.raises(BadInput, match="expected options momentum=VALUE, each once"):
        see(own, *flags, "--options=outer_lr=0.5", out="set_by_a_flag")
    with pytest.raises(BadInput, match="leave --fragments out"):
        see(own, *flags, "--fragments=2", out="not_read")


BIGRAMS = """
import jax.numpy as jnp
import optax

import dml

def bigrams(vocabulary, length):
    def scores(params, tokens):
        return params[tokens]
    def loss(params, batch):
        logits = scores(params, batch.inputs)
        return optax.softmax_cross_entropy_with_integer_labels(
            logits, batch.targets
        ).mean()
    return dml.Model(
        lambda key: jnp.zeros((vocabulary, vocabulary)),
        loss,
        lambda params, batch: {"cross_entropy": loss(params, batch)},
        scores=scores,
    )
"""


def test_a_language_model_of_a_user_is_trained_by_any_strategy(
    corpus_flags, plain, tmp_path
):
    (tmp_path / "mine.py").write_text(BIGRAMS)
    own = ["gpt.py", *corpus_flags, f"--model={tmp_path / 'mine.py'}:bigrams"]
    own += ["--simulate=2", "--steps=20", "--length=16", "--lr=0.1", "--clip=0"]
    first = gpt.main([*own, "--allreduce=star"])[0]
    again = gpt.main([*own, "--strategy=owned", f"--out={tmp_path / 'owned'}"])[0]
    assert first["params_sha256"] == again["params_sha256"]
    assert first["perplexity"] < 250  # of 300 tokens
    with pytest.raises(BadInput, match="--model=transformer with --experts=2"):
        gpt.main([*own, f"--out={tmp_path / 'refused'}", "--experts=2"])


def test_zeno_leaves_out_a_wrong_gradient(see):
    attack = ["--attack=sign_flip:20", "--attackers=1"]
    zeno = ["--strategy=zeno", "--simulate=3", *attack]
    attacked = see(*zeno, "--options=rate=0.05")
    none_left_out = see(*zeno, "--options=rate=0.05,faulty=0", out="all")
    assert attacked["loss"] < none_left_out["loss"]


def test_kfac_resumes_with_another_fraction_on_other_ranks(see, interrupt):
    ways = ["--strategy=kfac", "--reduce=order_free", "--shards=4", "--limit=0.1"]
    ways += ["--curvature_every=3", "--inverses_every=3"]  # none at the resume
    whole = see(*ways)
    assert 0 < interrupt(*ways)["steps"] < 6
    argv = ["vision.py", *SMALL, *ways, f"--resume={see.path / 'stopped'}"]
    resumed = vision.main([*argv, "--simulate=2", "--fraction=0.5"])[0]
    assert resumed["params_sha256"] == whole["params_sha256"]
    argv = [argv[0], *SMALL, argv[-1], "--strategy=synchronous"]
    with pytest.raises(
        BadInput, match="expected --strategy=kfac with --curvature_every"
    ):
        vision.main(argv)  # a flag of the run


def test_a_coded_run_resumes_and_no_attack_leaves_a_trace(see, interrupt):
    ways = ["--strategy=coded", "--shards=6", "--simulate=2"]
    attack = ["--attack=noise", "--attackers=2"]
    whole = see(*ways)
    interrupt(*ways, *attack)
    argv = ["vision.py", *SMALL, *ways, *attack, f"--resume={see.path / 'stopped'}"]
    resumed = vision.main(argv)[0]
    assert resumed["params_sha256"] == whole["params_sha256"]
    assert (whole["wrong_terms"], resumed["wrong_terms"]) == (0, 2)


def test_a_corrupt_checkpoint_is_passed_over_and_another_model_refused(
    see, stopped, capsys
):
    for flag in ("--model=cnn", "--lr=1"):
        with pytest.raises(BadInput, match=flag.strip("-").split("=")[0]):
            vision.main(["vision.py", *SMALL, f"--resume={stopped}", flag])
    last = max((stopped / "checkpoints").iterdir(), key=lambda path: path.name)
    last.write_bytes(last.read_bytes()[:-7])
    again = vision.main(["vision.py", *SMALL, f"--resume={stopped}"])[0]
    assert last.name in capsys.readouterr().err
    assert again["params_sha256"] == see(out="whole")["params_sha256"]


@pytest.mark.parametrize(
    "ranks, name", [(2, "synchronous"), (3, "synchronous"), (3, "ad_psgd")]
)
def test_all_ranks_resume_with_the_memory_of_each_saved_rank(
    tmp_path, ranks, name, capsys
):
    params, optimizer = {"w": np.ones(3, np.float32)}, make("sgd", 0.1)

    def state():
        return optimizer.init(params)

    def save(comm):
        memory = [np.full(4, comm.rank, np.float32), np.float32(comm.rank)]
        step = Step(7, 0.0, lambda: params, 1, {}, 0, state=state)
        step = step._replace(memory=lambda: memory)
        write = preparation.save_checkpoint(
            comm, tmp_path / "checkpoints", {}, {}, step
        )
        assert (write is None) == bool(comm.rank)
        if write:
            write()

    values = SimpleNamespace(resume=tmp_path, strategy=name, schedule="cosine")
    sim.run(save, 2)

    def load(comm):
        return preparation.start_or_resume(
            values, SimpleNamespace(params=params), optimizer, comm, steps=9, rules={}
        )[3]

    for memory in sim.run(load, ranks):
        found = [[leaf.tolist() for leaf in leaves] for leaves in memory]
        assert found == [[[0.0] * 4, 0.0], [[1.0] * 4, 1.0]]
    line = "memory of 2 ranks is added up on 3 ranks"
    added = ranks == 3 and name == "synchronous"  # replicas are not added up
    assert (line in capsys.readouterr().err) == added


@pytest.mark.parametrize(
    "argv, says",
    [
        (["--batch=50", "--simulate=4"], "--batch=48 or 52"),
        (["--batch=3", "--accumulate=2"], "--batch=2 or 4"),
        (["--zero=1"], "--strategy=mesh"),
        (["--strategy=local", "--bucket_mb=1"], "--strategy=synchronous"),
        (["--strategy=synchronous", "--local_every=2"], "--strategy=local"),
        (["--strategy=synchronous", "--scheme=server"], "--strategy=poseidon"),
        (["--strategy=poseidon", "--reduce=sign"], "leave --reduce out"),
        (["--strategy=local", "--noise", "--simulate=2"], "have full gradients"),
        (["--strategy=mesh", "--reduce=sign"], "or offload with --reduce=sign"),
        (["--strategy=kfac", "--simulate=2", "--fraction=0.4"], "of 1/2, 1 of 2 ranks"),
        (["--damping=1"], "expected --strategy=kfac with --damping=1"),
        (["--shards=4"], "reducer that sums several terms"),
        (["--batch=50", "--reduce=order_free", "--shards=8"], "8 logical shards"),
        (["--noise"], "two workers"),
        (["--strategy=serial", "--simulate=2"], "one rank"),
        (["--data=/nowhere"], "nowhere"),
        (["--resume=/nowhere"], "checkpoint"),
        (["--optimizer=sgd", "--warmup_steps=99"], "warm-up"),
    ],
)
def test_bad_input_is_one_line(see, argv, says):
    with pytest.raises(BadInput, match=says) as caught:
        see(*argv)
    assert "\n" not in str(caught.value)


def test_a_mesh_of_one_process_takes_real_time_and_pmap_moves_its_input(see):
    for call in ("shard_map", "pmap"):
        found = see("--strategy=mesh", f"--call={call}", out=call)
        assert found["images_per_second"] > 0


@pytest.mark.parametrize("optimizer", ["adamw", "lion", "sgd"])
def test_a_decay_of_0_is_none(optimizer):
    flags.parse(vision.FLAGS, ["x", f"--optimizer={optimizer}", "--decay=0"])
    params = {"kernel": np.ones((2, 2), np.float32)}
    rule = deep_flags.optimizer(vision.FLAGS, 10, params, ())
    zeros = {"kernel": np.zeros((2, 2), np.float32)}
    updates, _ = rule.update(zeros, rule.init(params), params)
    assert not np.any(updates["kernel"])


def test_replicas_that_drift_stop_with_the_leaf(see, monkeypatch):
    update_params, steps = bucket_sums.update_params, []

    def drifting(comm, parameters, *arguments):
        update_params(comm, parameters, *arguments)
        steps.extend([1] if comm.rank == 1 else [])
        if comm.rank == 1 and len(steps) == 2:
            params = jax.tree.map(lambda leaf: leaf, parameters.params)  # not shared
            params["head"]["kernel"] = params["head"]["kernel"].at[0, 0].add(1)
            parameters.params = params

    monkeypatch.setattr(bucket_sums, "update_params", drifting)
    with pytest.raises(FloatingPointError, match=r"step 2.*\['head'\]\['kernel'\]"):
        see("--simulate=2", "--check_every=2")


def test_bert_fills_in_blanks_of_its_corpus(plain, corpus_flags, capsys):
    argv = ["--length=16", "--batch=8", "--steps=3", "--timeline=0"]
    argv += ["--blank=a b ___ c", "--simulate=2"]
    summary = bert.main(["bert.py", *corpus_flags, *argv])[0]
    keys = {"loss", "accuracy", "cross_entropy", "perplexity", "tokens_per_second"}
    assert keys <= summary.keys()
    assert summary["perplexity"] == pytest.approx(np.exp(summary["cross_entropy"]))
    assert "___" in capsys.readouterr().out


def test_steps_move_nothing_unasked(see, monkeypatch):
    apply, guards = dense.apply, []

    def looking(*args):
        guards.append(jax.config.jax_transfer_guard)
        return apply(*args)

    monkeypatch.setattr(dense, "apply", looking)
    see()
    assert guards[0] != "disallow" and guards[1:] == ["disallow"] * 5


def test_experts_of_gpt_are_refused_before_training(plain, corpus_flags):
    with pytest.raises(BadInput, match="choices of 1 to 3 experts, got 4"):
        gpt.main(["gpt.py", *corpus_flags, "--experts=3", "--choices=4"])
