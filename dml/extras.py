"""The extra of `pip install` that has each optional package.

`pip install dml-methods` installs NumPy and greenlet: virtual ranks, collectives and
their conformance suite need no more. Other modules import a package of an extra, whose
name is in the error if the package is missing.
"""

from importlib import import_module
from types import ModuleType

DISTRIBUTION = "dml-methods"  # the name in setup.cfg
BASE = ("greenlet", "numpy")
EXTRAS = {
    "mpi": ("mpi4py",),
    "jax": ("flax", "jax", "jaxlib", "optax"),
    "numeric": ("llvmlite", "numba", "scipy", "sklearn"),
    "text": ("gensim", "tokenizers"),
    "figures": ("matplotlib",),
    "commands": ("absl", "jinja2", "markupsafe", "polars", "rich", "tensorboardX"),
    "rl": ("ale_py", "envpool", "gymnasium", "gymnax", "minatar"),
    "peers": ("celer", "liblinear", "lightgbm", "torch", "vowpalwabbit", "xgboost"),
    "track": ("mlflow", "trackio", "wandb"),
    "cuda12": ("pynvml",),
}


def load(name: str) -> ModuleType:
    """Import a module; the error of a missing package names the extra that has it."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        text = explain(error)
        if not text:
            raise
        raise ModuleNotFoundError(text, name=error.name) from error


def explain(error: BaseException) -> str:
    """Return how to install the package that an import misses; "" if it is unknown."""
    if not isinstance(error, ModuleNotFoundError):
        return ""
    package = (error.name or "").partition(".")[0]
    for extra, packages in EXTRAS.items():
        if package in packages:
            return (
                f"expected the package {package}, got none; pip install "
                f"'{DISTRIBUTION}[{extra}]'"
            )
    return ""
