"""Traced programs are read in every form of JAX's primitives, and by one module."""

import pytest

from tests.commands import COMPILED, PYTHON, ROOT, output

# forms that JAX 0.12 has beside those of 0.10, which ignores their variables
FORMS = ("JAX_REMAT3", "JAX_CUSTOM_JVP3", "JAX_CUSTOM_VJP3", "JAX_SCAN3")


@pytest.mark.parametrize("chosen", ((), FORMS), ids=("default", "experimental"))
def test_code_that_reads_programs_reads_every_form(chosen):
    options = COMPILED | {"JAX_PLATFORMS": "cpu"} | dict.fromkeys(chosen, "1")
    output(PYTHON, "-W", "error", "-m", "tests.models.primitives_main", **options)


@pytest.mark.parametrize(
    "name", ("jax._src", "jax.extend", "jax.core", "jax.interpreters", "remat2")
)
def test_one_module_has_names_that_depend_on_the_version(name):
    files = [*ROOT.glob("dml/**/*.py"), *ROOT.glob("experiments/**/*.py")]
    users = [file for file in files if name in file.read_text()]
    assert {str(file.relative_to(ROOT)) for file in users} <= {
        "dml/models/primitives.py"
    }
