import math

import papers_batches as batches
import papers_glove as glove
import papers_memory as memory
import papers_models as models
import papers_networks as networks
import papers_servers as servers
import papers_waiting as waiting
import pytest
from papers_claims import FAILS, HOLDS, UNTESTED, Claim, found
from papers_table import PAPERS

from tests.experiments import papers_cases as of

LEVEL = (0.5, 0.95, 1.0)
RULES = {  # of each: numbers that hold, and numbers that fail
    glove.same_loss: (of.glove(), of.glove((0.041, 0.043))),
    glove.same_accuracy: (of.glove(), of.glove(shares=(0.049, 0.062))),
    glove.reference: (
        of.glove(shares=(0.22, 0.225), corpus="text8"),
        of.glove(shares=(0.2, 0.225), corpus="text8"),
    ),
    memory.ordered: (of.races((1.9, 1.8, 1.0)), of.races((1.6, 1.8, 1.0))),
    memory.level: (of.delays(*LEVEL), of.delays(0.5, 0.6, 0.7)),
    memory.late: (of.delays(0.5, 0.6, 0.95), of.delays(*LEVEL)),
    memory.falls: (
        of.races((1.9, 1, 1), (1.5, 1, 1), names=("sparse", "dense")),
        of.races((1.5, 1, 1), (1.5, 1, 1), names=("sparse", "dense")),
    ),
    memory.threefold: (
        of.races((2.5, 1, 1), cores=8, workers=8),
        of.races((2.3, 1, 1), cores=8, workers=8),
    ),
    memory.same_bits: (of.cyclades(True, True), of.cyclades(True, False)),
    memory.quicker: (
        of.cyclades(ratios=(0.7, 1.3)),
        None,  # needs 9 workers: below
    ),
    memory.larger: (of.cyclades(), of.cyclades(steps=(0.11, 0.1))),
    servers.interior: (of.taus((300, 150, 170)), of.taus((300, 150, 140))),
    servers.idling: (of.taus((3, 1, 2)), of.taus((3, 1, 2), (0.49, 0.3, 0.1))),
    servers.filtered: (of.keys(), of.keys(sifted=0.9)),
    servers.cached: (of.keys(), of.keys(words=67)),
    servers.fixed: (of.softsync(), of.softsync(fixed=0.1)),
    servers.divided: (of.softsync(), of.softsync(damped=0.2)),
    servers.within: (of.softsync(), of.softsync(beyond=0.01)),
    waiting.loose: (of.bounded(None, 0.4), of.bounded(0.5, 0.4)),
    waiting.eager: (of.bounded(9.0, 0.4), of.bounded(9.0, 0.9)),
    waiting.profile: (of.bounded(9, 1), of.bounded(9, 1, (10.0, 9.0))),
    waiting.clocked: (
        of.clocks("clocks", "bounded", 1e-14),
        of.clocks("clocks", "bounded", 1e-3),
    ),
    waiting.first: (of.downpour(9, 10, 99), of.downpour(9.99, 10, 99)),
    waiting.freed: (of.downpour(11, 10, 99), of.downpour(12, 10, 11)),
    waiting.logarithm: (of.stragglers(), of.stragglers(thousand=20.0)),
    waiting.running: (
        of.clocks("stragglers", "bounded", 1e-14),
        of.clocks("stragglers", "bounded", 1e-3),
    ),
    waiting.asleep: (of.stragglers(), of.stragglers(measured=2.0)),
    networks.flat: (of.rings(), of.rings(many=2.0)),
    networks.crossed: (of.rings(), of.rings(few=0.9)),
    networks.optimal: (of.words(6 * 1024), of.words(8 * 1024)),
    networks.scales: (of.scaling(), of.scaling(vgg=(0.7, 1.0))),
    networks.diameter: (of.fabrics(), of.fabrics(flown=(3, 500, 1300.0, 1.0))),
    networks.routers: (of.fabrics(), of.fabrics(flown=(2, 700, 1300.0, 1.0))),
    networks.price: (of.fabrics(), of.fabrics(flown=(2, 500, 1900.0, 1.0))),
    networks.few_bytes: (of.fabrics(), of.fabrics(flown=(2, 500, 1300.0, 3.0))),
    networks.formula: (of.byteps(drained=1.02), of.byteps(first=7.4)),
    networks.interpolates: (of.byteps(drained=1.02), of.byteps(last=5.0)),
    batches.as_one: (of.warmups(), of.warmups(gradual=(0.04, 0.03, 0.04))),
    batches.unscaled: (of.warmups(), of.warmups(none=(0.05, 0.06, 0.05))),
    batches.gradual: (of.warmups(), of.warmups(constant=(0.02, 0.023, 0.021))),
    batches.holds_then_falls: (
        of.accuracies(0.02, 0.02, 0.025, 0.1),
        of.accuracies(0.02, 0.02, 0.025, 0.021),
    ),
    batches.bounded: (
        of.sizes((640, 640, 640, 1920), (640, 640, 1920, 7680)),
        of.sizes((640, 640, 640, 1920), (640, 640, 1920, 7680), (900, 4)),
    ),
    batches.beyond: (
        of.sizes((640, 640, 640, 1920), (640, 640, 1920, 7680)),
        of.sizes((640, 640, 1920, 1920), (640, 640, 1920, 7680)),
    ),
    batches.repeated: (
        of.sizes((640, 640, 640, 1920), (640, 640, 1920, 7680)),
        of.sizes((640, 640, 1920, 7680), (640, 640, 640, 1920)),
    ),
    models.as_formula: (of.grid(1.59, 1.88), of.grid(1.59, 1.7)),
    models.as_published: (of.grid(1.6, 1.9), of.grid(1.4, 1.9)),
    models.almost_linear: (of.grid(1.6, 1.9), of.grid(1.6, 1.4)),
    models.imbalanced: (of.grid(1, 1), of.grid(1, 1, uneven=1.3)),
    models.two_and_two: (of.tensor(), of.tensor(count=6)),
    models.counted: (of.shapes(), of.shapes(billions=1.7)),
    models.sixteen_bytes: (of.shapes(), of.shapes(gigabytes=20.0)),
    models.efficient: (of.bert(), of.bert(shares=(0.88, 0.6))),
    models.modelled: (of.bert(), of.bert(error=0.2)),
    models.fortnight: (of.bert(), of.bert(minutes=60.0)),
    models.recomputed: (of.carbon(), of.carbon(worst=0.05)),
    models.rounded: (of.carbon(), of.carbon(exact=8)),
}
MORE = [  # other ways to a verdict
    (glove.reference, of.glove(), UNTESTED),
    (glove.same_accuracy, of.glove(shares=(None, None)), UNTESTED),
    (memory.ordered, of.races((1.9, 1.2, 1.3)), FAILS),
    (memory.late, of.delays(0.5, 0.6, 0.7), HOLDS),
    (memory.late, of.delays(0.5, 0.6, 0.7, takes=(0.2, 1, 2)), UNTESTED),
    (memory.threefold, of.races((1.0, 1, 1)), UNTESTED),
    (memory.threefold, of.races((1.0, 1, 1), names=("cuts",)), UNTESTED),
    (memory.quicker, of.cyclades(), UNTESTED),
    (servers.interior, of.taus((None, None, None)), FAILS),
    (servers.interior, of.taus((140, 150, None)), FAILS),
    (servers.filtered, of.keys(objective=0.6), FAILS),
    (networks.scales, of.scaling(resnet=(0.6, 1.0)), FAILS),
    (networks.crossed, of.rings(most=1.1), FAILS),
    (batches.gradual, of.warmups(none=(0.03,), gradual=(0.02,)), UNTESTED),
    (batches.holds_then_falls, of.accuracies(0.02, 0.1, 0.1), FAILS),
    (models.two_and_two, of.tensor(sent=101), FAILS),
    (models.imbalanced, of.grid(1, 1, uneven=0.9), FAILS),
]
CASES = [
    (rule, seen, verdict)
    for rule, both in RULES.items()
    for seen, verdict in zip(both, (HOLDS, FAILS), strict=True)
    if seen
] + MORE


@pytest.mark.parametrize(
    "rule, seen, verdict",
    CASES,
    ids=[f"{rule.__name__}-{verdict}" for rule, _, verdict in CASES],
)
def test_a_rule_judges_by_numbers(rule, seen, verdict):
    finding = rule(seen)
    assert finding.verdict == verdict
    assert finding.ours and finding.because


def test_every_rule_of_a_paper_that_runs_is_tested():
    rules = {claim.rule for one in PAPERS.values() for claim in one.claims}
    assert {rule for rule in rules if rule.__name__ != "rule"} == set(RULES)


def test_cyclades_that_is_slower_fails_where_there_are_cores_enough():
    seen = of.cyclades(cores=16)
    for row in seen["cyclades"].rows:
        row["workers"] = 16
    assert memory.quicker(seen).verdict == FAILS


def test_every_rule_says_itself_in_words():
    rules = [claim.rule for one in PAPERS.values() for claim in one.claims]
    assert all(" ".join(rule.__doc__.split()).endswith(".") for rule in rules)


def test_a_number_that_a_run_lacks_leaves_a_claim_untested():
    claim = Claim("scales", "much", models.recomputed)
    finding = found(claim, {"carbon": of.run(summary={"seconds": 1})})
    assert finding.verdict == UNTESTED
    assert "has no 'strubell_worst_error'" in finding.because


@pytest.mark.parametrize("name", [name for name, one in PAPERS.items() if one.commands])
def test_nothing_is_true_of_a_run_that_has_no_numbers(name):
    seen = {command: of.run() for command in PAPERS[name].commands}
    findings = [found(claim, seen) for claim in PAPERS[name].claims]
    assert {finding.verdict for finding in findings} == {UNTESTED}


def test_a_run_that_diverges_is_infinitely_bad():
    ends = waiting.objectives(of.bounded(None, 0.4))
    assert ends["slow"]["ssp:10"] == math.inf
