"""Every paper, in the lectures' order: what it says, what here tests it, or why not."""

from papers_batches import BATCHES
from papers_claims import Claim, Paper, never
from papers_glove import GLOVE
from papers_memory import MEMORY
from papers_models import MODELS
from papers_networks import NETWORKS
from papers_servers import SERVERS
from papers_waiting import WAITING

UNRUN = (
    Paper(
        "qsgd",
        "Alistarh et al., QSGD: Communication-Efficient SGD via Gradient Quantization, "
        "NIPS 2017",
        "16 GPUs, ResNet-152",
        (
            Claim(
                "bits, variance and accuracy are bounded",
                "1.8x to full accuracy",
                never("no gradient is compressed here yet"),
            ),
        ),
    ),
    Paper(
        "impala",
        "Mnih et al., A3C, 2016; Espeholt et al., IMPALA, 2018, and SEED RL, 2019",
        "hundreds of actors",
        (
            Claim(
                "V-trace holds the return under policy lag",
                "reported",
                never("no environment is here to act in, nor actors"),
            ),
        ),
    ),
    Paper(
        "byzantine",
        "Blanchard et al., Machine Learning with Adversaries (Krum), NIPS 2017",
        "tens of workers",
        (
            Claim(
                "one attacker breaks the mean, robust rules hold to f",
                "theorem",
                never("no worker here lies, and no rule is robust, yet"),
            ),
        ),
    ),
)
ROWS = (*GLOVE, *MEMORY, *BATCHES, *MODELS, *NETWORKS, *SERVERS, *WAITING, *UNRUN)
ORDER = (
    *("glove", "hogwild", "parameter_server", "softsync", "ssp", "distbelief"),
    *("horovod", "slim_fly", "byteps", "large_batch", "speedup", "qsgd", "cyclades"),
    *("gpipe", "megatron", "bert_large", "stragglers", "impala", "byzantine"),
    "strubell",
)
PAPERS = {name: next(row for row in ROWS if row.name == name) for name in ORDER}
