"""Every command refuses bad input in one line, before it writes its run folder."""

import shlex
from importlib import import_module

import pytest

from dml.types import BadInput

SMALL = {
    "large_batch": "--factors=1,2 --large=2 --epochs=1 --base_batch=32",
    "linear": "--steps=30 --timeline=0",
    "stragglers": "--measure=0 --steps=40 --workers=4",
    "topology": "--p=16 --workers=2",
    "memory": "--nocompiled",
    "pipeline": "--blocks=14 --measured=",
    "consistency": "--problem=generated --simulate=6",
    "downpour": "--simulate=6 --servers=2",
    "server": "--problem=generated --clocks=6 --batch=240",
    "softsync": "--clocks=20 --batch=120 --snapshots=10 --n=1,3,6 --simulate=7",
    "asynchrony": "--problems=20,2 --features=40 --examples=300",
    "batch_size": "--examples=256 --features=60 --nonzeros=5 --batches=4,256",
}
CASES = [
    ("a3c --updates=3", "an update or more of each of 16 workers, got --updates=3"),
    ("policy_lag --seed=9223372036854775807 --seeds=4", "seeds below 9223372036854775"),
    *(
        (f"train {argv}", f"{flag}; leave --{name} out")
        for argv, name, flag in [
            ("--servers=3", "servers", "--strategy=server with --servers=3, got .*"),
            ("--consistency=ssp", "consistency", "--strategy=server with .*"),
            ("--strategy=mesh --allreduce=ring", "allreduce", "synchronous or .*mesh"),
            ("--group=1", "group", "--allreduce=hierarchical with --group=1.*"),
            (
                "--simulate=4 --strategy=server --staleness=7",
                "staleness",
                "--consistency=ssp or essp with --staleness=7, got --consistency=bsp",
            ),
            (
                "--problem=completion --strategy=hogwild --batch=9",
                "batch",
                "--strategy=serial or .*",
            ),
        ]
    ),
    ("train --network=nonsense", "expected --simulate with --network=nonsense, got"),
    ("train --simulate=3 --strategy=mesh --network=0,0,0", "got devices of one rank"),
    ("train --attackers=5", "--attack and --attackers together"),
    ("train --options=accumulate=-1", "from 1 to 1000000 for accumulate of --strategy"),
    ("train --options=accumulate=1,accumulate=2", "each once"),
    ("vision --strategy=mesh --allreduce=ring", "expected --strategy=synchronous or"),
    ("vision --network=0,0,0", "expected --simulate with --network=0,0,0"),
    ("glove --strategy=serial --medium=memory", "--strategy=rotation with --medium"),
    ("glove --servers=2", "expected --strategy=server with --servers=2"),
    ("svm --hot=0.5", "expected --updates=hogwild_private with --hot=0.5"),
    ("server --simulate=4 --softsync=2", "--consistency=softsync with --softsync=2"),
    ("rl --simulate=3 --algorithm=a3c --allreduce=ring", "impala or seed with --allr"),
    ("rl --environment=cartpol --simulate=2", "'cartpol'; pass cartpole"),
    ("rl --simulate=1", "expected 2 ranks or more, a learner and an actor, got 1"),
    ("rl --simulate=3 --learners=2", "expected 1 to 1 learners of 3 ranks"),
    (
        "rl --simulate=4 --lag=0",
        "a lag bound of 1 or more with 3 actors and 1 rollouts",
    ),
    ("rl --simulate=3 --algorithm=a3c --elastic", "impala, seed or apex with --el"),
    ("rl --simulate=3 --algorithm=a3c --resume=no", "the folder of a run with"),
    ("averaging --p=1", "expected 2 to 16777216 peers in --p, got 1; correct it"),
    ("averaging --p=8,x", "whole numbers from 1 .* in --p, got 'x'"),
    ("averaging --peers=32", "expected 33 to 1024 peers in --peers, got 32"),
    ("averaging --peers=1025", "got 1025"),
    ("averaging --sides=4xfour", "expected sides such as 32x32 in --sides, got"),
    ("averaging --sides=1x1", "expected a grid with 2 to 16777216 seats"),
    ("averaging --absences=1", "numbers from 0 to 0.99 in --absences, got '1'"),
    ("averaging --length=100000000", "memory"),
    ("async_diloco --speeds=1", "two speeds or more in --speeds, got '1'"),
    ("async_diloco --speeds=1,0", "numbers above 0 in --speeds, got '1,0'"),
    ("async_diloco --methods=adam", "expected --methods of synchronous"),
    ("vision --strategy=diloco --barrier_every=8", "ad_psgd or async_diloco with"),
    ("vision --strategy=ad_psgd --outer_lr=1", "diloco or async_diloco with"),
    ("volunteers --deadlines=60,0", "numbers above 0 in --deadlines, got '60,0'"),
    ("volunteers --work=fast", "expected a distribution of constant:C,"),
    ("two_towers --crossings=3678,six", "ascending layers in --crossings.*got 'six'"),
    ("two_towers --crossings=33", "got '33'"),
    ("large_batch --large=4", "--large among the --factors above 1, got 4 and 1,2"),
    ("large_batch --base_batch=1000", "minibatches of at most 1437 images"),
    ("large_batch --data=nowhere", "nowhere"),
    ("linear --allreduce=rign", "value should be one of <.*ring"),
    ("linear --profile", "got --timeline=0; pass --timeline=<number of steps>"),
    ("vision --simulate=8 --attackers=2", "--attack and --attackers together"),
    ("vision --attack=nan --attackers=1", "expected two workers or more with --attack"),
    (
        "vision --simulate=8 --attack=nan --attackers=5",
        "at most half of the 8 workers as attackers, got --attackers=5; pass at most 4",
    ),
    ("vision --simulate=8 --attack=evil --attackers=1", "one of <sign_flip.*FILE.py"),
    (
        "vision --simulate=8 --attack=ipm:x --attackers=1",
        "EPSILON is 'x' instead of a number from 0",
    ),
    (
        "vision --simulate=8 --attack=nan --attackers=1 --reduce=qsgd",
        "expected --reduce=exact or a reducer of mean, .* with an attack",
    ),
    ("vision --simulate=8 --reduce=krum:3", "n >= 9 workers with --reduce=krum:3, got"),
    ("vision --simulate=8 --reduce=krum:2+bucketing", "expected n >= 13 workers with"),
    ("train --simulate=4 --reduce=bulyan", "expected n >= 7 workers with --reduce=bul"),
    (
        "vision --simulate=2 --strategy=serial --attack=alie --attackers=1",
        "expected --strategy=synchronous or local or coded or zeno or diloco or "
        "offload with --attack=",
    ),
    (
        "vision --simulate=2 --strategy=kfac --attack=sign_flip --attackers=1",
        "or offload with --attack=sign_flip, got --strategy=kfac",
    ),
    ("vision --simulate=2 --skew=sorted", "a skew of similarity:GAMMA"),
    ("vision --simulate=2 --reduce=krum+feedback", "krum with .nnm, .bucketing"),
    ("vision --simulate=2 --reduce=median@ring", "a transport of scatter, gather"),
    ("train --simulate=4 --problem=svm --skew=dirichlet:1", "one label per example"),
    (
        "train --simulate=4 --strategy=server --consistency=async --attack=alie "
        "--attackers=1",
        "expected --consistency=bsp with an attack that knows all gradients",
    ),
    ("vision --simulate=8 --strategy=coded", "use 6 or 9 workers"),
    (
        "vision --simulate=2 --strategy=zeno --accumulate=2",
        "--accumulate=1 with --strategy=zeno, got --accumulate=2; leave it out",
    ),
    ("vision --simulate=2 --strategy=diloco --reduce=krum:2", "n >= 7 workers"),
    ("vision --simulate=6 --strategy=coded --code=draco:1", "a code of repetition"),
    (
        "vision --simulate=6 --strategy=coded --attack=label_flip --attackers=1",
        "copies of a part with equal labels, got --attack=label_flip",
    ),
    (
        "vision --simulate=6 --strategy=coded --attack=noise --attackers=3 --steps=2",
        "2 equal terms of the workers .1, 3, 5. of group 1, got at most 1",
    ),
    (
        "vision --simulate=6 --strategy=coded --reduce=krum:1@gather",
        "for the terms of groups, got 'krum:1@gather'",
    ),
    (
        "train --simulate=6 --strategy=zeno --options=faulty=6",
        "expected 0 to 5 faulty terms of 6 workers, got 6",
    ),
    ("linear --batch=2000", "expected a batch of 1 to 1437 examples, got batch=2000"),
    ("linear --strategy=serial --simulate=2", "expected one rank"),
    ("linear --simulate=2 --network=fast", "expected a network"),
    ("step_time --size=large", "expected a --size of tiny, .*, got 'large'"),
    ("step_time --strategies=ring", "expected --strategies of serial, "),
    ("step_time --zero=4", "expected --zero of 0, 1, 2, 3 or all, got '4'"),
    ("step_time --peer=jax", "expected --peer of torch, torch_compile"),
    (
        "glove_strategies --ways=rotaton",
        "expected --ways of serial, .* or all, got 'rotaton'",
    ),
    ("glove_strategies --strategy=serial,rotation", "strategy"),
    (
        "glove_strategies --reference=nowhere",
        "the C program shuffle in --reference=nowhere",
    ),
    ("allreduce --algorithms=ring,rign", "expected --algorithms of star, .*got 'rign'"),
    ("allreduce --buffers=plane", "expected --buffers of registered, plain"),
    ("allreduce --sizes=4XB", "expected a size such as 4KB, .*got '4XB'"),
    ("allreduce --sizes=6B", "expected a multiple of 4 bytes"),
    ("allreduce --simulate=4 --group=5", "expected groups of at most 4 ranks"),
    ("allreduce --simulate=4 --group=2x", "expected group sizes separated by x, got"),
    ("topology --group=4x0", "expected groups of at least 1, got --group=4x0"),
    ("allreduce --simulate=2 --peers", "expected real ranks with --peers"),
    ("allreduce --simulate=4096 --sizes=1GB", "memory"),
    (
        "pipeline_templates --nodes=7",
        "8 nodes or more for 2 pipelines of 4 nodes, got 7",
    ),
    ("pipeline_templates --nodes=300", "nodes=300"),
    ("gradient_coding --workers=9", "divisible by 2, the copies of a part .* got 9"),
    ("gradient_coding --workers=40 --stragglers=7", "at most 3 decimal digits, got"),
    ("gradient_coding --workers=4 --stragglers=4", "fewer stragglers than the 4 work"),
    (
        "gradient_coding --tails=heavy",
        "expected --tails of load, fixed or all, got 'heavy'",
    ),
    ("gradient_coding --law=gamma:1", "shifted_exponential:C,MU.*got 'gamma:1'"),
    ("train --strategy=gradient_coding", "a master and at least one worker, got one"),
    ("stragglers --law=gamma:1", "shifted_exponential:C,MU.*got 'gamma:1'"),
    ("stragglers --law=constant:-1", "C is '-1' instead of"),
    ("stragglers --workers=1000000000", "memory"),
    ("stragglers --k=1.5", "k=1.5"),
    ("topology --sizes=100B", "expected multiples of 64 bytes, .*got 100B"),
    ("topology --sizes=0KB", "got 0B"),
    ("topology --p=1", "expected at least 2 ranks, got --p=1"),
    ("topology --networks=torsu", "expected a network of .*got 'torsu'"),
    ("topology --networks=torus:2x2", "4 ranks on Torus.*got 16"),
    ("topology --algorithms=rign", "got 'rign'"),
    ("carbon --strategies=serial,magic", "expected --strategies of serial, hogwild"),
    ("carbon --strategies=server --ranks=1", "at least 2 ranks for server"),
    (
        "plan --devices=8",
        "tensor:8 needs \\d+.\\d GiB, \\d+.\\d GiB more than a device has",
    ),
    ("allreduce --watch=broadcast:ring", "an algorithm of binomial, chain, .*'ring'"),
    ("allreduce --watch=mean:ring", "a collective of allreduce, .*got 'mean'"),
    ("allreduce --watch=ring --simulate=65", "expected 2 to 64 virtual ranks, got 65"),
    ("server --watch", "expected 2 to 64 virtual ranks with --watch, got 0; pass"),
    ("server --watch --simulate=4 --colocated", "ranks of their own with --watch"),
    ("averaging --watch=ring --ranks=65", "2 to 64 virtual ranks with --watch, got 65"),
    ("plan --mesh=tenor:8", "axis:size of tensor, stage, .*got 'tenor:8'"),
    ("plan --mesh=tensor:3", "a mesh of 1024 devices .*got --mesh=tensor:3"),
    ("plan --failure_hours=1e-6", "failures that leave time to work, got one in"),
    ("plan --validate=nowhere.csv", "a CSV file or published, got nowhere.csv"),
    ("papers --run=hogwash", "expected --run of glove, .*got 'hogwash'"),
    ("papers", "expected --list or --run"),
    ("memory --devices=4", "got 4 of 80 GB; pass --devices=48$"),
    ("memory --devices=49", "got 49 of 80 GB; pass --devices=\\d+$"),
    (
        "memory --device_gb=0.001",
        "no mesh .*fits the model in 0.001 GB per device; increase --device_gb",
    ),
    ("pipeline --layer_seconds=1,x", "seconds above 0 in --layer_seconds, .*got '1,x'"),
    ("pipeline --layer_seconds=1,2", "got 2 layers and 8 parts"),
    ("pipeline --blocks=5", "got 7 layers and 8 parts"),
    ("pipeline --stages=5 --rounds=4", "got 16 layers and 20 parts"),
    ("pipeline --network=hosts:1x4", "expected 1 to 4 ranks on Hosts"),
    ("pipeline --network=star", "expected a network of .*got 'star'"),
    ("scaling --simulate=2", "expected --step_seconds with --simulate"),
    (
        "scaling --step_seconds=0.1 --rates=1,2",
        "expected --rates of three numbers or five, got '1,2'",
    ),
    ("scaling --step_seconds=0.1 --rates=-1,1e-9,1e-9", "expected rates of 0 or more"),
    ("consistency --consistency=bsp,fast", "consistency of bsp.*got 'fast'; pass"),
    ("consistency --consistency=ssp:-1", "got 'ssp:-1'"),
    ("consistency --consistency=backup:5", "--backup of 0 to 4"),
    ("consistency --laws=gamma:1", "got 'gamma:1'"),
    ("consistency --laws=", "expected a distribution"),
    ("consistency --servers=6", "1 to 5 servers of 6 ranks, got 6"),
    ("consistency --batch=1000000", "--batch=<at most"),
    ("downpour --law=gamma:1", "got 'gamma:1'"),
    ("downpour --servers=6", "1 to 5 servers of 6 ranks, got 6"),
    ("server --simulate=1", "2 ranks or more, a worker and a server, got 1"),
    ("server --simulate=4 --l1=0.1", "expected --problem=logistic with --l1=0.1"),
    (
        "server --simulate=4 --svmlight=x",
        "expected --problem=logistic with --svmlight=x",
    ),
    ("server --simulate=4 --kkt_margin=0", "--l1 above 0 with --kkt_margin=0"),
    ("server --simulate=4 --optimizer=newton", "--lr with --optimizer=newton"),
    ("server --simulate=4 --optimizer=newton --lr=1", "rule of sgd.*'newton'"),
    ("server --simulate=4 --straggle=gamma:1", "got 'gamma:1'"),
    ("server --simulate=4 --batch=1000000", "--batch=<at most"),
    ("server --simulate=4 --consistency=backup --backup=3", "--backup of 0 to 2"),
    (
        "server --simulate=4 --problem=logistic --svmlight=/no/file",
        "svmlight file at /no/file",
    ),
    (
        "server --simulate=4 --lr=1e30 --clocks=20",
        "clock \\d+: expected a finite gradient.*--on_nonfinite=skip",
    ),
    ("server --simulate=4 --replicas=4", "2 replicas or more and a worker on 4 ranks"),
    ("server --simulate=4 --replicas=2 --colocated", "servers on ranks of their own"),
    ("server_chain --simulate=8 --kill=tail,tall", "expected --kill of head, middle"),
    ("server_bandwidth --simulate=4 --servers=4", "expected 1 to 3 servers of 4 ranks"),
    ("server_bandwidth --simulate=4 --servers=two", "expected whole numbers from 1"),
    ("server_bandwidth --simulate=1", "expected 2 ranks or more"),
    ("server_bandwidth --simulate=2 --sizes=3B", "expected a multiple of 4 bytes"),
    ("softsync --n=7", "--softsync of 1 to 6, the number of workers, got 7"),
    ("softsync --law=gamma:1", "got 'gamma:1'"),
    ("softsync --servers=7", "1 to 6 servers of 7 ranks, got 7"),
    ("asynchrony '--law=constant:1*1,2'", "delete them"),
    ("asynchrony --problems=41", "at most --features=40"),
    ("asynchrony --rates=2000", "pass --lr and --mu"),
    ("batch_size --batches=512", "--batches of at most 256 examples"),
    ("batch_size --nonzeros=61", "--nonzeros of at most 60"),
    ("batch_size --copies=200", "--copies of at most half of 256"),
    ("batch_size --data=uniform", "expected --data of diverse, repeated or all"),
    ("cuts --data=nowhere", "DIMACS file at nowhere, got"),
    ("cyclades --problems=glove", "--problems of svm, .*got 'glove'"),
    ("cyclades --hubs=1,2", "numbers from 0 to 1 in --hubs, got '1,2'"),
    ("hogwild --problems=svn", "--problems of svm, completion, .*got 'svn'"),
    ("hogwild --updates=cyclades", "--updates of hogwild, .*got 'cyclades'"),
]


VOLUNTEERS = [
    (
        "volunteers --rounds=2 --lifetime=0.001",
        "expected volunteers that stay for a round, got none in 2 rounds",
    ),
    (
        "volunteers --rounds=9 --lr=1e30",
        "the weights are not finite after round 1; pass a smaller --lr",
    ),
]


@pytest.mark.parametrize("command, message", CASES, ids=[case[0] for case in CASES])
def test_bad_input_is_one_line(command, message, tmp_path):
    name, *argv = shlex.split(command)
    small = [flag for flag in shlex.split(SMALL.get(name, "")) if flag not in argv]
    with pytest.raises((BadInput, FloatingPointError), match=message) as error:
        import_module(name).main([name, f"--out={tmp_path / 'run'}", *small, *argv])
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("command, message", VOLUNTEERS)
def test_a_training_that_fails_is_one_line(command, message, tmp_path, monkeypatch):
    monkeypatch.setattr("studies.volunteers.formulas.PEERS", (1, 3))
    monkeypatch.setattr("studies.volunteers.learner.CHUNK", 4)  # compiled for as many
    small = " --simulate=4 --groups=1 --matchmakings=1"
    test_bad_input_is_one_line(command + small, message, tmp_path)
