"""All papers in the order of the lectures: citation, scale, claims and commands."""

import batch_size_claims
import carbon_claims
import glove_claims
import hogwild_claims
import large_batch_claims
import megatron_claims
import pipeline_claims
import scaling_claims
import server_claims
import stragglers_claims
import topology_claims
from claims import never
from papers_runs import Command, Paper, of

# consistency.py and stragglers.py
STALE = "--consistency=ssp:0,ssp:1,ssp:2,ssp:4,ssp:8,ssp:16"
BOUNDED = "--consistency=ssp:0,ssp:2,ssp:3,ssp:5,ssp:10,essp:0,essp:10 --network=1,0,0"
HIGH = "--laws=shifted_exponential:1,3;shifted_exponential:1,0.5"
SMALL = "--problem=generated --clocks=12 --batch=512"
LAW = f"--law={stragglers_claims.FIGURE}"
# server.py
KEYS = "--simulate=2 --problem=logistic --l1=5e-4 --batch=1024 --clocks=100"
# topology.py
FLAT = "--networks=uniform --algorithms=ring,butterfly --workers=2"
FABRICS = "--networks=torus,fat_tree,dragonfly,slim_fly --workers=2"
SCHEDULES = "--algorithms=tree,butterfly,halving_doubling,ring,hierarchical"
# scaling.py: 25 Gb/s out of a host of 4 GPUs, 5 us a message: Horovod's machines, as
# reported
PORT = "--host=4 --rates=5e-6,3.2e-10,1e-11 --workers=512 --batch=64"

ROWS = (
    Paper(
        "glove",
        "Pennington et al., GloVe: Global Vectors for Word Representation, EMNLP 2014, "
        "and its demo",
        "5.0 M words of 17 M, 1 and 2 ranks on {cores} cores; 15 epochs of 15",
        of("glove", *glove_claims.CLAIMS),
        {
            "glove": Command(
                "glove_strategies.py",
                "--corpus=newsgroups --dim=50 --ranks=1,2 "
                "--ways=serial,rotation,hogwild,operation,synchronous,server",
                "--ranks=2 --ways=serial,rotation,hogwild,operation,synchronous",
                "--corpus=README.md --min_count=1 --dim=8 --epochs=1 --ranks=1 "
                "--ways=serial,rotation",
            )
        },
        "glove/strategies.svg",
        (300, 130),
    ),
    Paper(
        "hogwild",
        "Niu et al., HOGWILD!: A Lock-Free Approach to Parallelizing Stochastic "
        "Gradient Descent, NIPS 2011",
        "{cores} cores of 12, 2 workers; 11,293 documents of 781,265, 8 slices of a "
        "brain, 90,004 ratings",
        of("hogwild", *hogwild_claims.HOGWILD),
        {
            "hogwild": Command(
                "hogwild.py",
                "--repeats=9",
                "--repeats=5",
                "--problems=sparse,dense --epochs=1 --repeats=1 --delays=0,2 "
                "--delayed=sparse",
            )
        },
        "hogwild/speedup.svg",
        (90, 50),
    ),
    Paper(
        "parameter_server",
        "Li et al., Scaling Distributed Machine Learning with the Parameter Server, "
        "OSDI 2014",
        "6 virtual workers and 2 servers of 1000 machines; waits of matrix "
        "factorisation (90,000 ratings), keys of sparse logistic regression on 11,293 "
        "documents x 42,254 of 170 billion x 65 billion",
        (
            *of("staleness", server_claims.interior, server_claims.idle),
            *of("filter plain", server_claims.filtered),
            *of("plain uncached", server_claims.cached),
            *of(
                "",
                never(
                    "a dead server is replaced at once",
                    "0.8 s",
                    "servers here are not replicated: one that dies ends the run",
                ),
            ),
        ),
        {
            "staleness": Command(
                "consistency.py",
                f"{STALE} --laws={stragglers_claims.FIGURE}",
                "",
                SMALL,
            ),
            "plain": Command("server.py", KEYS, "", "--clocks=4"),
            "filter": Command("server.py", f"{KEYS} --kkt_margin=0", "", "--clocks=4"),
            "uncached": Command("server.py", f"{KEYS} --key_lists=0", "", "--clocks=4"),
        },
        "staleness/waiting_1.svg",
        (25, 25),
    ),
    Paper(
        "softsync",
        "Zhang et al., Staleness-Aware Async-SGD for Distributed Deep Learning, 2015",
        "30 virtual learners of 30; 1,437 digits of 50,000 images of CIFAR-10, a "
        "network of 6,090 weights",
        of("softsync", *server_claims.SOFTSYNC),
        {
            "softsync": Command(
                "softsync.py",
                "",
                "--n=15,30 --lr=0.4",
                "--n=3 --lr=0.4 --simulate=4 --clocks=6 --batch=60",
            )
        },
        "softsync/error.svg",
        (45, 25),
    ),
    Paper(
        "ssp",
        "Ho et al., More Effective Distributed ML via a Stale Synchronous Parallel "
        "Parameter Server, NIPS 2013; Dai et al. (ESSP), AAAI 2015",
        "6 virtual workers and 2 servers of 8 to 64 machines; 90,000 ratings; a "
        "message takes as long as the fastest gradient",
        (
            *of(
                "bounded",
                server_claims.ssp_diverges,
                server_claims.essp_converges,
                server_claims.essp_tighter,
            ),
            *of("clocks", stragglers_claims.ssp_clock),
        ),
        {
            "bounded": Command(
                "consistency.py",
                f"{BOUNDED} {HIGH}",
                "",
                f"{SMALL} --consistency=ssp:0,ssp:10,essp:10",
            ),
            "clocks": Command(
                "stragglers.py",
                f"{LAW} --workers=10,100 --measure=0",
                "",
                "--workers=4 --steps=40",
            ),
        },
        "bounded/who_diverges.svg",
        (25, 25),
    ),
    Paper(
        "distbelief",
        "Dean et al., Large Scale Distributed Deep Networks, NIPS 2012",
        "16 virtual workers and 4 servers of thousands of cores; 1,437 digits and "
        "6,090 weights of 16 M images and 1.7 billion",
        of("downpour", *server_claims.DOWNPOUR),
        {
            "downpour": Command(
                "downpour.py",
                "--snapshots=1",
                "--lr=0.6 --adagrad_lr=0.2",
                "--lr=0.5 --adagrad_lr=0.1 --clocks=4 --batch=60 --simulate=4 "
                "--servers=1",
            )
        },
        "downpour/accuracy.svg",
        (45, 20),
    ),
    Paper(
        "horovod",
        "Patarasuk & Yuan, Bandwidth Optimal All-reduce Algorithms, JPDC 2009; "
        "Sergeev & Del Balso, Horovod, 2018",
        "4 real ranks on {cores} cores and up to 256 virtual ones; 512 GPUs "
        "predicted, where 64 images take 0.48 s (ResNet-101) or 0.42 s (VGG-16) [M]",
        (
            *of("flat", topology_claims.flat),
            *of("words", topology_claims.optimal),
            *of("flat", topology_claims.crossed),
            *of("resnet vgg", scaling_claims.scales),
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
        of(
            "fabrics",
            topology_claims.diameter,
            topology_claims.routers,
            topology_claims.price,
            topology_claims.few_bytes,
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
            *of("byteps", topology_claims.formula, topology_claims.interpolates),
            *of(
                "",
                never(
                    "BERT-large scales at 256 GPUs",
                    "90 % of linear, all-reduce 70 %",
                    "256 GPUs on 32 hosts, whose CPUs add up, are not here",
                ),
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
    Paper(
        "large_batch",
        "Goyal et al., Accurate, Large Minibatch SGD, 2017; the lecture's AlexNet",
        "8 to 256 images of 256 to 8192; 1,437 digits and a perceptron of 1.28 M "
        "images and ResNet-50; 10 seeds of 5 (12 if full)",
        of("batches", *large_batch_claims.PAPER),
        {
            "batches": Command(
                "large_batch.py",
                "--seeds=12",
                "--seeds=10",
                "--seeds=2 --factors=1,2 --large=2 --epochs=1 --base_batch=32 "
                "--target=0.6 --lr=0.05 --warmup_epochs=0.25",
            )
        },
        "batches/accuracy.svg",
        (70, 60),
    ),
    Paper(
        "speedup",
        "The lecture: speed-up is time to accuracy, serial over parallel; Yin et al., "
        "Gradient Diversity, 2018",
        "32,768 generated examples, batches of 1 to 32,768",
        of("sizes", *batch_size_claims.CLAIMS),
        {
            "sizes": Command(
                "batch_size.py",
                "--workers=1",
                "--batches=4,16,64,256,512,1024,4096,32768",
                "--examples=256 --features=60 --nonzeros=5 --copies=16 --mu=1e-3 "
                "--batches=4,64,256 --epochs=20 --looks=8",
            )
        },
        "sizes/steps.svg",
        (40, 30),
    ),
    Paper(
        "qsgd",
        "Alistarh et al., QSGD: Communication-Efficient SGD via Gradient Quantization, "
        "NIPS 2017",
        "16 GPUs, ResNet-152",
        of(
            "",
            never(
                "bits, variance and accuracy are bounded",
                "1.8x to full accuracy",
                "no gradient is compressed here yet",
            ),
        ),
    ),
    Paper(
        "cyclades",
        "Pan et al., CYCLADES: Conflict-free Asynchronous Machine Learning, NIPS 2016",
        "{cores} cores of 18, 2 workers; 11,293 documents, 90,004 ratings",
        of("cyclades", *hogwild_claims.CYCLADES),
        {
            "cyclades": Command(
                "cyclades.py",
                "",
                "--problems=svm,completion --repeats=3",
                "--problems=sparse --bits=1,2 --checked=64 --batches=64 --hubs=1 "
                "--epochs=1 --repeats=1 --tried=1 --late=3",
            )
        },
        "cyclades/throughput.svg",
        (40, 35),
    ),
    Paper(
        "gpipe",
        "Huang et al., GPipe: Efficient Training of Giant Neural Networks using "
        "Pipeline Parallelism, NeurIPS 2019, Table 2",
        "2 to 8 virtual devices of 2 to 8; 46 blocks 128 wide, timed here",
        of("pipeline", *pipeline_claims.PAPER),
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
            *of("tensor", megatron_claims.two_and_two),
            *of("memory", megatron_claims.counted, megatron_claims.sixteen_bytes),
            *of(
                "",
                never(
                    "8.3 B on 512 V100", "15.1 PFLOP/s, 76 %", "512 GPUs are not here"
                ),
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
        of("scaling", *scaling_claims.CLAIMS),
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
        "stragglers",
        "The lecture's figure: X = 1 + Exp(0.5), 10 ... 10,000 workers",
        "10 to 10,000 virtual workers of 10 to 10,000; 8 real ones on {cores} cores",
        of(
            "stragglers",
            stragglers_claims.logarithm,
            stragglers_claims.running,
            stragglers_claims.asleep,
        ),
        {
            "stragglers": Command(
                "stragglers.py", LAW, "", "--workers=10 --measure=2 --steps=400"
            )
        },
        "stragglers/stragglers.svg",
        (15, 15),
    ),
    Paper(
        "impala",
        "Mnih et al., A3C, 2016; Espeholt et al., IMPALA, 2018, and SEED RL, 2019",
        "hundreds of actors",
        of(
            "",
            never(
                "V-trace holds the return under policy lag",
                "reported",
                "no environment is here to act in, nor actors",
            ),
        ),
    ),
    Paper(
        "byzantine",
        "Blanchard et al., Machine Learning with Adversaries (Krum), NIPS 2017",
        "tens of workers",
        of(
            "",
            never(
                "one attacker breaks the mean, robust rules hold to f",
                "theorem",
                "no worker here lies, and no rule is robust, yet",
            ),
        ),
    ),
    Paper(
        "strubell",
        "Strubell et al., Energy and Policy Considerations for Deep Learning in NLP, "
        "ACL 2019, as in the lecture",
        "the table's own watts and hours",
        of("carbon", *carbon_claims.CLAIMS),
        {"carbon": Command("carbon.py", "--nomeasure")},
        "",
        (4, 4),
    ),
)
PAPERS = {row.name: row for row in ROWS}
