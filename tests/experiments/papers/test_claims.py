"""Every claim has one rule, by which a run and papers.py come to the same verdict."""

import json
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from lab import claims, flags, writing
from lab.claims import FAILS, HOLDS, UNTESTED, Claim, judge, print_verdicts
from studies.a3c import claims as a3c
from studies.apex import claims as apex
from studies.averaging import claims as averaging
from studies.boosting import claims as boosting
from studies.byteps import claims as ranks
from studies.byzantine import claims as byzantine
from studies.carbon import claims as carbon
from studies.checkpoints import claims as checkpoints
from studies.compression import claims as compression
from studies.compression import crossover_claims as crossover
from studies.compression import quantization_claims as quantization
from studies.decentralised import claims as decentralised
from studies.diloco import claims as diloco
from studies.dimensions import claims as dimensions
from studies.factors import claims as factors
from studies.glove import claims as glove
from studies.gradient_coding import claims as coding
from studies.kfac import claims as kfac
from studies.large_batch import claims as batches
from studies.offload import claims as offload
from studies.owners import claims as owners
from studies.papers import runs as papers_runs
from studies.papers.runs import PAPERS, Judged
from studies.pipeline import claims as pipeline
from studies.pipeline import zero_bubble_claims as zero_bubble
from studies.plan import claims as plan
from studies.policy_lag import claims as policy_lag
from studies.rl import claims as rl
from studies.scaling import claims as scaling
from studies.server import claims as server
from studies.shared_memory import asynchrony_claims as asynchrony
from studies.shared_memory import batch_size_claims as batch_size
from studies.shared_memory import hogwild_claims as hogwild
from studies.shuffling import claims as shuffling
from studies.stragglers import claims as stragglers
from studies.tensor import claims as tensor
from studies.topology import allreduce_claims as swing
from studies.topology import claims as topology

from dml.runs import results
from tests.experiments.papers import claims_cases as of
from tests.experiments.run_folder import read_summary

EXPERIMENTS = Path(claims.__file__).parents[1]
JUDGED = {one.claim: one for paper in PAPERS.values() for one in paper.claims}
LEVEL = (0.5, 0.95, 1.0)
EVEN = (0.9, 0.9, 0.9)
NEMO, VTRAIN = "NVIDIA/Megatron-LM", "VIA-Research/vTrain"
BLOOM, EVO = "bigscience-workshop/bigscience", "InternLM/InternEvo"
BATCHES = (640, 640, 640, 1920), (640, 640, 1920, 7680)
RULES = {  # for each claim: runs of which it holds, and runs of which it fails
    glove.same_loss: (of.glove(), of.glove((0.041, 0.043))),
    glove.same_accuracy: (of.glove(), of.glove(shares=(0.049, 0.062))),
    glove.reference: (
        of.glove(shares=(0.22, 0.225), corpus="text8"),
        of.glove(shares=(0.2, 0.225), corpus="text8"),
    ),
    hogwild.ordered: (of.races((1.9, 1.8, 1.0)), of.races((1.6, 1.8, 1.0))),
    hogwild.level: (of.delays(*LEVEL), of.delays(0.5, 0.6, 0.7)),
    hogwild.late: (of.delays(0.5, 0.6, 0.95), of.delays(*LEVEL)),
    hogwild.falls: (
        of.races((1.9, 1, 1), (1.5, 1, 1), names=("sparse", "dense")),
        of.races((1.5, 1, 1), (1.5, 1, 1), names=("sparse", "dense")),
    ),
    hogwild.threefold: (
        of.races((2.5, 1, 1), cores=8, workers=8),
        of.races((2.3, 1, 1), cores=8, workers=8),
    ),
    hogwild.same_bits: (of.cyclades(True, True), of.cyclades(True, False)),
    hogwild.quicker: (
        of.cyclades(True, ratios=(0.7, 1.3)),
        of.cyclades(True, workers=16),
    ),
    offload.repeated: (of.trained(), of.trained(orders=2)),
    offload.least_moves: (of.searched(), of.searched(best=9)),
    offload.same_bits: (of.trained(), of.trained(sha256="b")),
    offload.larger: (of.trained(), of.trained(peak_bytes=51)),
    offload.gentle: (of.swapped(0.7), of.swapped(0.6)),
    offload.overlapped: (of.swapped(0.7), of.swapped(0.7, above_bound=1.3)),
    offload.counted: (of.trained(), of.trained(counted_bytes=9)),
    hogwild.larger: (of.cyclades(True), of.cyclades(True, steps=(0.11, 0.1))),
    compression.quantised_accuracy: (
        of.compressed(qsgd={"accuracy": 0.941}),
        of.compressed(qsgd={"accuracy": 0.939}),
    ),
    compression.quantised_speed: (
        of.compressed(qsgd={"step_seconds": 3e-4}),
        of.compressed(qsgd={"step_seconds": 5e-4}),
    ),
    compression.low_rank_accuracy: (
        of.compressed(low={}),
        of.compressed(low={"accuracy": 0.93}),
    ),
    compression.low_rank_feedback: (
        of.compressed(plain={"loss": 0.2, "accuracy": 0.9}, low={}),
        of.compressed(plain={"loss": 0.2}, low={}),
    ),
    compression.low_rank_speed: (
        of.compressed(low={"step_seconds": 3e-4}),
        of.compressed(low={}),
    ),
    compression.equal_bytes: (
        of.compressed("equal", low={}, top={"accuracy": 0.9}, random={"accuracy": 0.5}),
        of.compressed("equal", low={}, top={"accuracy": 0.5}, random={"accuracy": 0.6}),
    ),
    compression.signs_diverge: (
        of.counterexamples(1.0, 0.01),
        of.counterexamples(0.1, 0.01),
    ),
    compression.feedback_converges: (
        of.counterexamples(1.0, 0.01),
        of.counterexamples(1.0, 0.3),
    ),
    compression.feedback_accuracy: (
        of.compressed(sign={"accuracy": 0.93}, fed={}),
        of.compressed(sign={"accuracy": 0.96}, fed={}),
    ),
    compression.dgc_accuracy: (
        of.compressed(dgc={}),
        of.compressed(dgc={"accuracy": 0.93}),
    ),
    compression.dgc_without: (
        of.compressed(dgc={}, top={"accuracy": 0.93}),
        of.compressed(dgc={}, top={}),
    ),
    compression.dgc_ratio: (
        of.compressed(dgc={"last_ratio": 140}),
        of.compressed(dgc={"last_ratio": 130}),
    ),
    compression.adam_loss: (
        of.compressed(adam={"held_out_loss": 0.104}),
        of.compressed(adam={"held_out_loss": 0.106}),
    ),
    compression.adam_bytes: (
        of.compressed(adam={"ratio": 4.9}),
        of.compressed(adam={"ratio": 2.9}),
    ),
    byzantine.mean_breaks: (
        of.attacked(mean=(0.9, 0.69, 0.1)),
        of.attacked(mean=(0.9, 0.71, 0.1)),
    ),
    decentralised.gossip_converges: (
        of.replicas(synchronous=(0.94, 0.9), gossip=(0.93, 0.5)),
        of.replicas(synchronous=(0.94, 0.9), gossip=(0.92, 0.9)),
    ),
    decentralised.gossip_is_faster: (
        of.replicas(2.0, synchronous=(0.9, 0.9), gossip=(0.9, 0.9)),
        of.replicas(1.0, synchronous=(0.9, 0.9), gossip=(0.9, 0.9)),
    ),
    decentralised.sgp_is_accurate: (
        of.replicas(synchronous=(0.94, 0.9), push_sum=(0.928, 0.5)),
        of.replicas(synchronous=(0.94, 0.9), push_sum=(0.927, 0.9)),
    ),
    decentralised.sgp_is_faster: (
        of.replicas(3.2, synchronous=(0.9, 0.9), push_sum=(0.9, 0.9)),
        of.replicas(3.1, synchronous=(0.9, 0.9), push_sum=(0.9, 0.9)),
    ),
    decentralised.relay_is_accurate: (
        of.replicas(synchronous=(0.9, 0.94), relay=(0.8, 0.916)),
        of.replicas(synchronous=(0.9, 0.94), relay=(0.9, 0.915)),
    ),
    decentralised.relay_order: (
        of.replicas(relay=(0.9, 0.94), gossip=(0.9, 0.93), d2=(0.9, 0.93)),
        of.replicas(relay=(0.9, 0.94), gossip=(0.9, 0.93), d2=(0.9, 0.95)),
    ),
    decentralised.relay_skew: (
        of.replicas(relay=(0.9, 0.9), gossip=(0.9, 0.89)),
        of.replicas(relay=(0.9, 0.89), gossip=(0.9, 0.9)),
    ),
    boosting.quantiles: (of.boosting(), of.boosting(few=0.8775)),
    boosting.sparse: (of.boosting(), of.boosting(stored=2.1)),
    boosting.independent: (of.boosting(), of.boosting(vote=112)),
    boosting.accurate: (of.boosting(), of.boosting(lower=0.003)),
    dimensions.same: (of.dimensions(), of.dimensions(difference=1e-8)),
    dimensions.faster: (of.dimensions(), of.dimensions(ratio=6.0)),
    dimensions.best: (of.dimensions(), of.dimensions(best=100)),
    dimensions.cocoa: (of.dimensions(), of.dimensions(times=49.0)),
    dimensions.fewer: (of.dimensions(), of.dimensions(words=11)),
    diloco.diloco_is_as_good: (
        of.exchanges((0, 3.0), (8, 3.02), (32, 4.0)),
        of.exchanges((0, 3.0), (8, 3.04), (32, 3.0)),
    ),
    diloco.diloco_sends_less: (
        of.exchanges((0, 3.0), (8, 3.0), (32, 3.0)),
        of.exchanges((0, 3.0), (8, 3.0), (32, 3.0), more=1.1),
    ),
    diloco.diloco_by_period: (
        of.exchanges((8, 3.0), (32, 3.5), (128, 3.02)),
        of.exchanges((8, 3.0), (32, 3.0), (128, 3.03)),
    ),
    diloco.streaming_peak: (
        of.exchanges((8, 3.0), (8, 3.0, "exact", 4)),
        of.exchanges((8, 3.0), (8, 3.0, "exact", 4), more=1.1),
    ),
    diloco.streaming_is_as_good: (
        of.exchanges((8, 3.0), (8, 3.02, "exact", 4), (8, 2.9, "exact", 4, 2)),
        of.exchanges((8, 3.0), (8, 3.02, "exact", 4), (8, 3.04, "exact", 4, 2)),
    ),
    diloco.coded_is_as_good: (
        of.exchanges((8, 3.0), (32, 2.9), (8, 3.02, "int8")),
        of.exchanges((8, 3.0), (32, 3.9), (8, 3.04, "int8")),
    ),
    byzantine.krum_holds: (
        of.attacked(krum=(0.9, 0.9, 0.86)),
        of.attacked(krum=(0.9, 0.9, 0.84)),
    ),
    byzantine.multi_krum_clean: (
        of.attacked(mean=(0.9, 0.1, 0.1), multi_krum=(0.86, 0.1, 0.1)),
        of.attacked(mean=(0.9, 0.1, 0.1), multi_krum=(0.84, 0.1, 0.1)),
    ),
    byzantine.krum_falls: (
        of.attacked(krum=(0.9, 0.9, 0.69)),
        of.attacked(krum=(0.9, 0.9, 0.71)),
    ),
    byzantine.trimmed_mean_falls: (
        of.attacked(trimmed_mean=(0.9, 0.9, 0.69)),
        of.attacked(trimmed_mean=(0.9, 0.9, 0.71)),
    ),
    byzantine.mixing_lifts: (
        of.attacked(name="skewed", krum=(0.9, 0.9, 0.5), krum_nnm=(0.9, 0.9, 0.51)),
        of.attacked(name="skewed", krum=(0.9, 0.9, 0.5), krum_nnm=(0.9, 0.9, 0.5)),
    ),
    byzantine.clipping_needs_momentum: (
        of.attacked(name="momentum", centred_clipping=(0.9, 0.9, 0.86))
        | of.attacked(name="plain", centred_clipping=(0.9, 0.9, 0.69)),
        of.attacked(name="momentum", centred_clipping=(0.9, 0.9, 0.86))
        | of.attacked(name="plain", centred_clipping=(0.9, 0.9, 0.71)),
    ),
    byzantine.draco_exact: (
        of.coded(0.5, 0.5, 0.5, 0.5),
        of.coded(0.5, 0.5, 0.5, 0.6),
    ),
    byzantine.uncoded_breaks: (of.uncoded(0.69), of.uncoded(0.71)),
    quantization.code_length: (of.bounded_codes(1, 2), of.bounded_codes(1.01, 0.5)),
    quantization.variance: (of.bounded_codes(2, 1), of.bounded_codes(0.5, 1.01)),
    crossover.rarely_pays: (of.setups(27), of.setups(28)),
    shuffling.counted_ratio: (
        of.traffic((1, 0.16, 0.16, 10_000, 1), (0, 0, 0, 0, 1)),
        of.traffic((1, 0.16, 0.17, 10_000, 1)),
    ),
    shuffling.parity_point: (
        of.traffic((1, 0.2, 0.2, 9, 1), (1, 5.0, 5.0, 9, 30)),
        of.traffic((1, 0.2, 0.2, 9, 1), (1, 0.9, 0.9, 9, 30)),
    ),
    shuffling.small_fraction: (
        of.shards("synchronous", EVEN, EVEN),
        of.shards("synchronous", EVEN, (0.5, 0.85, 0.9)),
    ),
    shuffling.no_exchange: (
        of.shards("synchronous", EVEN, EVEN),
        of.shards("synchronous", EVEN, (0.5, 0.895, 0.9)),
    ),
    shuffling.mixed_shards: (
        of.shards("local", EVEN, (0.5, 0.895, 0.9)),
        of.shards("local", EVEN, EVEN),
    ),
    shuffling.small_fraction_local: (
        of.shards("local", EVEN, EVEN),
        of.shards("local", EVEN, (0.5, 0.85, 0.9)),
    ),
    server.interior: (of.taus((300, 150, 170)), of.taus((300, 150, 140))),
    server.idle: (of.taus((3, 1, 2)), of.taus((3, 1, 2), (0.49, 0.3, 0.1))),
    server.filtered: (of.keys(), of.keys(sifted=0.9)),
    server.cached: (of.keys(), of.keys(words=67)),
    server.recovers: (of.keys(), of.keys(recovery=0.9)),
    server.fixed: (of.softsync(), of.softsync(fixed=0.1)),
    server.divided: (of.softsync(), of.softsync(damped=0.2)),
    server.within: (of.softsync(), of.softsync(beyond=0.01)),
    server.ssp_diverges: (of.bounded(None, 0.4), of.bounded(0.5, 0.4)),
    server.essp_converges: (of.bounded(9.0, 0.4), of.bounded(9.0, 0.9)),
    server.essp_tighter: (of.bounded(9, 1), of.bounded(9, 1, (10.0, 9.0))),
    coding.repetition_naive: (of.coding(), of.coding(repetition=80)),
    coding.cyclic_naive: (of.coding(), of.coding(cyclic=80)),
    coding.repetition_ignoring: (of.coding(), of.coding(repetition=41)),
    coding.cyclic_ignoring: (of.coding(), of.coding(cyclic=38, best=0.9)),
    coding.loaded_naive: (of.coding("load"), of.coding("load", cyclic=81)),
    coding.order_statistic: (of.coding(), of.coding(error=1e-8)),
    a3c.speedup: (of.workers(), of.workers(seconds=(80.0, 60.0, 30.0))),
    a3c.frames_constant: (of.workers(), of.workers(frames=(80e3, 80e3, 125e3))),
    apex.prioritised: (of.replayed(), of.replayed(uniform=500)),
    apex.different_epsilons: (of.replayed(), of.replayed(one_epsilon=499)),
    apex.more_actors: (of.replayed(), of.replayed(fewer_actors=400)),
    policy_lag.vtrace_holds: (of.lagged(), of.lagged(vtrace=350.0)),
    policy_lag.none_falls: (of.lagged(), of.lagged(none=365.0)),
    policy_lag.vtrace_above_none: (of.lagged(), of.lagged(vtrace=75.0)),
    policy_lag.one_step_above_none: (of.lagged(), of.lagged(one_step=75.0)),
    policy_lag.epsilon_above_none: (of.lagged(), of.lagged(epsilon=75.0)),
    rl.fewer_words: (of.inference(), of.inference(second=51.0)),
    rl.equal_words: (of.sizes_of_model(), of.sizes_of_model(51.0)),
    rl.faster: (of.speeds(), of.speeds(a3c=9e3)),
    stragglers.ssp_clock: (of.clocks("clocks", 1e-14), of.clocks("clocks", 1e-3)),
    server.adagrad_first: (of.downpour(9, 10, 99), of.downpour(9.99, 10, 99)),
    server.sync_beaten: (of.downpour(11, 10, 99), of.downpour(12, 10, 11)),
    stragglers.logarithm: (of.stragglers(), of.stragglers(thousand=20.0)),
    stragglers.running: (of.clocks("stragglers", 1e-14), of.clocks("stragglers", 1e-3)),
    stragglers.asleep: (of.stragglers(), of.stragglers(measured=2.0)),
    topology.flat: (of.rings(), of.rings(many=2.0)),
    topology.crossed: (of.rings(), of.rings(few=0.9)),
    topology.optimal: (of.words(6 * 1024), of.words(8 * 1024)),
    scaling.scales: (of.scaling(), of.scaling(vgg=(0.7, 1.0))),
    topology.diameter: (of.fabrics(), of.fabrics(flown=(3, 500, 1300.0, 1.0))),
    topology.routers: (of.fabrics(), of.fabrics(flown=(2, 700, 1300.0, 1.0))),
    topology.price: (of.fabrics(), of.fabrics(flown=(2, 500, 1900.0, 1.0))),
    topology.few_bytes: (of.fabrics(), of.fabrics(flown=(2, 500, 1300.0, 3.0))),
    swing.swing_fastest: (of.tori(), of.tori(swing=1.01)),
    swing.swing_over_halving: (of.tori(), of.tori(halving=0.9)),
    swing.trivance_words: (of.tori(), of.tori(words=31)),
    swing.trivance_better: (of.tori(trivance=0.85), of.tori(trivance=0.88)),
    swing.bine_saves: (of.jobs((0.14, 0.15)), of.jobs((0.16, 0.14))),
    swing.bine_at_most: (of.jobs(), of.jobs(most=0.34)),
    swing.bine_worse: (of.jobs(), of.jobs(worse=0.14)),
    swing.bine_faster: (of.jobs(), of.jobs(gain=0.99)),
    topology.formula: (of.byteps(drained=1.02), of.byteps(first=7.4)),
    ranks.measured_formula: (
        of.spare_ranks(1.01, 1.09, 0.95, 1.05),
        of.spare_ranks(1.01, 1.11, 0.95, 1.05),
    ),
    ranks.measured_order: (
        of.spare_ranks(1, 1, 1, 1),
        of.spare_ranks(1, 1, 1, 1, seconds=(0.4, 0.41)),
    ),
    ranks.fused_speedup: (of.hub(), of.hub(fusion=1.4)),
    ranks.fused_share: (of.hub(), of.hub(raw=0.69)),
    ranks.fused_copy_share: (of.hub(), of.hub(copy=0.69)),
    topology.interpolates: (of.byteps(drained=1.02), of.byteps(last=5.0)),
    batches.as_one: (of.warmups(), of.warmups(gradual=(0.04, 0.03, 0.04, 0.03, 0.04))),
    batches.unscaled: (of.warmups(), of.warmups(none=(0.05, 0.06, 0.05, 0.05, 0.06))),
    batches.gradual: (
        of.warmups(),
        of.warmups(constant=(0.02, 0.023, 0.021, 0.03, 0.03)),
    ),
    batches.holds_then_falls: (
        of.accuracies(0.02, 0.02, 0.025, 0.1),
        of.accuracies(0.02, 0.02, 0.025, 0.021),
    ),
    batch_size.bounded: (of.sizes(*BATCHES), of.sizes(*BATCHES, (900, 4))),
    batch_size.beyond: (
        of.sizes(*BATCHES),
        of.sizes((640, 640, 1920, 1920), (640, 640, 1920, 7680)),
    ),
    batch_size.repeated: (
        of.sizes(*BATCHES),
        of.sizes((640, 640, 1920, 7680), (640, 640, 640, 1920)),
    ),
    pipeline.as_formula: (of.grid(1.59, 1.88), of.grid(1.59, 1.7)),
    pipeline.as_published: (of.grid(1.6, 1.9), of.grid(1.4, 1.9)),
    pipeline.almost_linear: (of.grid(1.6, 1.9), of.grid(1.6, 1.4)),
    pipeline.imbalanced: (of.grid(1, 1), of.grid(1, 1, uneven=1.3)),
    zero_bubble.h1_bubble: (of.zero_bubble(), of.zero_bubble(h1=1.1)),
    zero_bubble.h2_bubble: (of.zero_bubble(), of.zero_bubble(h2=0.1)),
    zero_bubble.v_bubble: (of.zero_bubble(), of.zero_bubble(folded=0.1)),
    zero_bubble.same_gradients: (
        of.zero_bubble(bits=(0, 0)),
        of.zero_bubble(wrong=1e-5),
    ),
    zero_bubble.post_validation: (of.validated(), of.validated(same=False)),
    tensor.two_and_two: (of.tensor(), of.tensor(count=6)),
    tensor.counted: (of.shapes(), of.shapes(billions=1.7)),
    tensor.sixteen_bytes: (of.shapes(), of.shapes(gigabytes=20.0)),
    scaling.efficient: (of.bert(), of.bert(shares=(0.88, 0.6))),
    scaling.modelled: (of.bert(), of.bert(error=0.2)),
    scaling.fortnight: (of.bert(), of.bert(minutes=60.0)),
    plan.megatron: (of.published(NEMO), of.published(NEMO, p90=0.17)),
    plan.vtrain: (of.published(VTRAIN), of.published(VTRAIN, median=0.07)),
    plan.vtrain_ranked: (of.published(VTRAIN), of.published(VTRAIN, tau=0.6)),
    plan.bloom: (of.published(BLOOM), of.published(BLOOM, median=0.06)),
    plan.bloom_ranked: (of.published(BLOOM), of.published(BLOOM, tau=-0.1)),
    plan.bloom_memory: (of.published(BLOOM), of.published(BLOOM, found=3)),
    plan.internevo: (of.published(EVO), of.published(EVO, p90=0.12)),
    carbon.recomputed: (of.carbon(), of.carbon(worst=0.05)),
    carbon.rounded: (of.carbon(), of.carbon(exact=8)),
    batches.steps: (of.epochs(800, 420, 250, 220), of.epochs(800, 700, 650, 640)),
    pipeline.no_gain: (of.grid(1, 1, first=1.2), of.grid(1, 1, first=1.4)),
    pipeline.ordered: (of.grid(1.6, 1.9), of.grid(1.9, 1.6)),
    asynchrony.sparsity: (of.delayed(2, 1, 1, 0), of.delayed(0, 0, 2, 2)),
    asynchrony.step: (of.delayed(2, 1, 1, 0), of.delayed(1, 2, 1, 2)),
    averaging.order: (of.restarts(), of.restarts(sgp=8.0)),
    averaging.reproduced: (of.restarts(), of.restarts(sgp=47.7)),
    averaging.sgp_power: (
        of.restarts(one_peer_exponential=40.0),
        of.restarts(one_peer_exponential=9.0),
    ),
    averaging.sgp_other: (of.restarts(), of.restarts(other=9.0)),
    averaging.published_contraction: (
        of.contractions(0.469, 0.4675),
        of.contractions(0.469, 0.404),
    ),
    averaging.exact_contraction: (
        of.contractions(0.4045, 0.403),
        of.contractions(0.4045, 0.409),
    ),
    averaging.grid: (of.teapots(1e-35), of.teapots(1e-5)),
    checkpoints.recovery: (of.recovered(), of.recovered(groups_of_2=0.934)),
    checkpoints.expected_time: (of.intervals(), of.intervals(error=-0.011)),
    checkpoints.best_interval: (of.intervals(), of.intervals(least=0.5)),
    checkpoints.bounded: (of.saves(), of.saves(overhead=0.036)),
    factors.words_of_the_example: (
        of.factors(),
        of.factors(counted=(3.67, 33.55, 58.77)),
    ),
    factors.fewest_words: (of.factors(), of.factors(server=1.9)),
    factors.faster_than_servers: (of.factors(), of.factors(hybrid=6.1)),
    factors.convolutions_are_summed: (of.factors(), of.factors(filters="factors")),
    kfac.equal_bits: (of.kfac(), of.kfac(sha256="d")),
    kfac.memory_for_words: (of.kfac(), of.kfac(sent=71)),
    kfac.fewer_updates: (of.kfac(), of.kfac(updates=82)),
    kfac.fewer_seconds: (of.kfac(), of.kfac(seconds=1.7)),
    owners.equal_bits: (of.owners(), of.owners(sha256="d")),
    owners.words_as_adamw: (of.owners(), of.owners(sent=111)),
    owners.half_state: (of.owners(), of.owners(state=61)),
}
MORE = [  # other reasons of a verdict
    (checkpoints.recovery, of.recovered(sampled=0.93), FAILS),
    (rl.fewer_words, of.inference(updates=19), UNTESTED),
    (rl.equal_words, of.sizes_of_model(updates=19), UNTESTED),
    (rl.faster, of.speeds(frames=49e3), UNTESTED),
    (checkpoints.best_interval, of.intervals(above=0.02), FAILS),
    (checkpoints.bounded, of.saves(error=0.02), UNTESTED),
    (averaging.order, of.restarts(gossip=40.0), FAILS),
    (averaging.order, of.restarts(moshpit=48.0), FAILS),
    (averaging.order, of.restarts(absent=5.0), FAILS),
    (averaging.reproduced, of.restarts(moshpit=9.0), HOLDS),  # its seats have no seed
    (averaging.reproduced, of.restarts(moshpit=10.0), FAILS),
    (averaging.reproduced, of.restarts(restarts=3), UNTESTED),
    (averaging.grid, of.teapots(1e-35, second=0.05), FAILS),
    (glove.reference, of.glove(), UNTESTED),
    (glove.same_accuracy, of.glove(shares=(None, None)), UNTESTED),
    (hogwild.ordered, of.races((1.9, 1.2, 1.3)), FAILS),
    (hogwild.late, of.delays(0.5, 0.6, 0.7), HOLDS),
    (hogwild.late, of.delays(0.5, 0.6, 0.7, takes=(0.2, 1, 2)), UNTESTED),
    (hogwild.threefold, of.races((1.0, 1, 1)), UNTESTED),
    (hogwild.threefold, of.races((1.0, 1, 1), names=("cuts",)), UNTESTED),
    (hogwild.quicker, of.cyclades(True), UNTESTED),
    (server.interior, of.taus((None, None, None)), FAILS),
    (server.interior, of.taus((140, 150, None)), FAILS),
    (server.filtered, of.keys(objective=0.6), FAILS),
    (server.recovers, of.keys(lost=1), FAILS),
    (server.recovers, of.keys(recovery=None), UNTESTED),
    (scaling.scales, of.scaling(resnet=(0.6, 1.0)), FAILS),
    (topology.crossed, of.rings(most=1.1), FAILS),
    (ranks.measured_formula, of.spare_ranks(1, 1, 1, 1, exact=False), FAILS),
    (ranks.fused_speedup, of.hub(exact=False), FAILS),
    (batches.gradual, of.warmups(seeds=4), UNTESTED),  # 1 in 16 by chance
    (batches.as_one, of.warmups(gradual=of.SLIGHTLY_MORE), FAILS),
    (batches.steps, of.epochs(800, 420, 210, None), HOLDS),
    (batches.steps, of.epochs(800, 500, 320, 210), FAILS),
    (batches.steps, of.epochs(800, 400, 200, 100), FAILS),
    (batches.steps, of.epochs(800, None, None, None), UNTESTED),
    (batches.holds_then_falls, of.accuracies(0.02, 0.02, 0.02), FAILS),
    (batches.holds_then_falls, of.accuracies(0.02, 0.1, 0.1), FAILS),
    (tensor.two_and_two, of.tensor(sent=101), FAILS),
    (pipeline.imbalanced, of.grid(1, 1, uneven=0.9), FAILS),
    (zero_bubble.h1_bubble, of.zero_bubble(memory=5), FAILS),
    (zero_bubble.h2_bubble, of.zero_bubble(memory=5), FAILS),
    (zero_bubble.v_bubble, of.zero_bubble(memory=5), FAILS),
    (zero_bubble.post_validation, of.validated(saved=0.0), FAILS),
    (zero_bubble.post_validation, of.validated(clipped=0), FAILS),
    (hogwild.ordered, of.races((1.5, 1.54, 0.2)), HOLDS),  # noise
    (hogwild.ordered, of.races((1.5, 1.5, 0.2), ways=("hogwild",)), UNTESTED),
    (hogwild.level, of.delays(1.0, 0.5, 1.0), FAILS),  # level before by chance
    (batch_size.beyond, of.sizes((640,) * 4, (640,) * 4), UNTESTED),
    (batch_size.beyond, of.sizes((640, None, None, None), (640,) * 4), UNTESTED),
    (batch_size.bounded, of.sizes((None,) * 4, (640,) * 4), FAILS),
    (server.ssp_diverges, of.bounded(0.56, 0.4), HOLDS),  # as it began
    (server.essp_converges, of.bounded(9.0, None), FAILS),
    (server.adagrad_first, of.downpour(None, None, 99), UNTESTED),
    (server.adagrad_first, of.downpour(None, 9, 99), FAILS),
    (compression.quantised_accuracy, of.compressed(seeds=2, qsgd={}), UNTESTED),
    (quantization.code_length, of.bounded_codes(1, 1, trials=19), UNTESTED),
    (crossover.rarely_pays, of.setups(0, ranks=22), UNTESTED),
    (shuffling.counted_ratio, of.traffic((1, 0.16, 0.17, 100, 1)), HOLDS),  # chance
    (shuffling.counted_ratio, of.traffic((0, 0.1, 0, 9, 1)), FAILS),  # no formula
    (shuffling.counted_ratio, of.traffic((0, 0, 0, 0, 1)), UNTESTED),
    (shuffling.parity_point, of.traffic((1, 0.2, 0.2, 9, 1)), UNTESTED),
    (shuffling.small_fraction, of.shards("synchronous", EVEN, EVEN, 4), UNTESTED),
    (shuffling.small_fraction, of.shards("local", EVEN, EVEN), UNTESTED),
    (
        shuffling.small_fraction,
        of.shards("synchronous", (0.9, None, 0.9), EVEN),
        UNTESTED,
    ),
    (topology.optimal, of.words(6 * 1024, check=True), UNTESTED),
    (hogwild.quicker, of.cyclades(True, ratios=(0.7, 1.04)), UNTESTED),  # noise
    (topology.flat, of.rings(most_bytes=1 << 20), UNTESTED),
    (asynchrony.sparsity, of.delayed(1, 1, 1, 1), UNTESTED),
    (asynchrony.sparsity, of.delayed(1, 0, 0, 1), FAILS),  # both occur
]
CASES = [
    (claim, seen, result)
    for claim, both in RULES.items()
    for seen, result in zip(both, (HOLDS, FAILS), strict=True)
] + MORE


def named(value):
    return {dict: "runs"}.get(type(value)) or getattr(value, "name", value)


def found(claim, seen):
    """Judge a claim as papers.py does, by the runs of its commands."""
    return papers_runs.judge_claim(JUDGED.get(claim, Judged(claim, tuple(seen))), seen)


def printed(names):
    """Return the claims among the names of an experiment, and in their tuples."""
    values = [one if type(one) is tuple else (one,) for one in names.values()]
    return [one for value in values for one in value if isinstance(one, Claim)]


def defined():
    """Return all claims of all experiments."""
    paths = EXPERIMENTS.glob("studies/*/*claims.py")
    modules = [
        import_module(f"studies.{path.parent.name}.{path.stem}") for path in paths
    ]
    every = {one for module in modules for one in printed(vars(module))}
    assert len(modules) > 10
    return every


@pytest.mark.parametrize("claim, seen, result", CASES, ids=named)
def test_a_rule_judges_by_numbers(claim, seen, result):
    verdict = found(claim, seen)
    assert verdict.result == result
    assert verdict.measured and verdict.reason


ALONE = [case for case in CASES if len(case[1]) == 1]


@pytest.mark.parametrize("claim, seen, result", ALONE, ids=named)
def test_a_run_and_papers_come_to_the_same_verdict(
    claim, seen, result, tmp_path, monkeypatch, capsys
):
    ((name, run),) = seen.items()
    values = flags.parse(flags.define("seed"), ["test"])
    monkeypatch.setattr(flags, "chosen", lambda _: run.flags)
    with writing.run_writer(tmp_path, values, None, claims=(claim,)) as writer:
        for row in run.rows:
            writer.row(row)
        writer.summary(run.summary)
    summary = read_summary(tmp_path)
    verdict = found(claim, {name: results.read(tmp_path)})
    assert verdict == found(claim, seen)  # JSON keeps the numbers
    assert summary[f"verdict_{claim.name}"] == verdict.result == result
    assert summary[f"found_{claim.name}"] == verdict.measured
    assert summary["verdict"] == f"{result}: {claim.text}"
    printed = f"ours: {verdict.measured} ({verdict.reason}): {result}\n"
    assert (printed in capsys.readouterr().out) == (verdict.measured != claims.MISSING)


def test_every_claim_has_runs_of_which_it_holds_and_fails():
    assert defined() == set(RULES)


def test_an_experiment_judges_every_claim_of_its_paper():
    for paper in PAPERS.values():
        for claim, commands in paper.claims:
            if len(commands) == 1:
                script = paper.commands[commands[0]].script
                names = vars(import_module(script.removesuffix(".py")))
                assert claim in printed(names)


def test_results_are_judged_by_the_rules_of_the_code():
    """A rule that changes wants a new run of its paper."""
    for path in (EXPERIMENTS.parent / "docs" / "results").glob("*.json"):
        record = json.loads(path.read_text())
        recorded = [[one[key] for key in ("claim", "published", "rule")]
                    for one in record["findings"]]  # fmt: skip
        stated = [[one.text, one.published, one.rule_text]
                  for one, _ in PAPERS[record["name"]].claims]  # fmt: skip
        assert recorded == stated


def test_a_number_that_a_run_lacks_leaves_a_claim_untested(capsys):
    run = of.run(summary={"seconds": 1})
    verdict = judge(carbon.recomputed, run)
    assert verdict.result == UNTESTED
    assert "has no 'strubell_worst_error'" in verdict.reason
    summary = print_verdicts((carbon.recomputed,), run)
    assert summary["verdict_recomputed"] == UNTESTED
    assert not capsys.readouterr().out


@pytest.mark.parametrize("name", [name for name, one in PAPERS.items() if one.commands])
def test_nothing_is_true_of_a_run_that_has_no_numbers(name):
    seen = {command: of.run() for command in PAPERS[name].commands}
    verdicts = [papers_runs.judge_claim(one, seen) for one in PAPERS[name].claims]
    assert {verdict.result for verdict in verdicts} == {UNTESTED}


@pytest.mark.parametrize(
    "apart, result",
    [
        ([1, 2, 3, 4, 5], True),
        ([1, 2, 3, 4, -0.5], False),
        ([1, 2, 3, 4, 0], False),
        ([0, 0, 0, 0, 0], False),
        ([-1, -2, -3, -4, -5], False),
        ([9, 9, 9, 9], False),
        ([3, 3, 3, 3, 3, 3, 3, -1, -1], True),
    ],
)
def test_a_row_is_worse_if_chance_would_hardly_make_it_so(apart, result):
    than = np.array([0.3, 0.1, 0.2, 0.5, 0.4, 0.1, 0.2, 0.3, 0.1])[: len(apart)]
    assert batches.worse(than + np.array(apart) / 100, than) == result


def test_a_point_is_lost_even_if_one_seed_is_spared():
    one, spared = np.full(5, 0.02), np.array([0.02, 0.05, 0.06, 0.06, 0.09])
    lost, worse = batches.accuracy_lost, batches.worse
    assert not worse(spared, one) and lost(spared, one)
    assert not lost(one + 0.01 * np.array([1, 1, 1, 1, -1]), one)


def test_a_delay_is_tolerated_if_none_up_to_it_doubles_the_error():
    found = asynchrony.tolerated_delays(of.late(2, 1, 0, 2))
    assert list(found.values()) == [2, 1, 0, 2]
    rows = of.late(2, 2, 2, 2)
    rows[2]["error"] = float("nan")
    assert asynchrony.tolerated_delays(rows)["a", 1.0] == 1


@pytest.mark.parametrize(
    "examples, b0",
    [
        ([100, 100, 200, 201], 16),
        ([100, 100, 300, 100], 4),  # what comes after a bad one does not count
        ([100, 90, 80, 70], 64),
        ([100, None, 100, 100], 1),
        ([None, 100, 100, 100], None),
    ],
)
def test_b0_is_the_last_batch_of_at_most_twice_the_examples(examples, b0):
    rows = of.sizes(examples, examples)["sizes"].rows[:4]
    assert batch_size.efficient_batch(rows) == b0
