from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dml.data.sparse.hypergraphs import documents, generate
from dml.types import BadInput


def incidence(edges, rows):
    assert (np.diff(edges.starts) > 0).all() and edges.starts[-1] == len(edges.rows)
    touched = np.zeros((len(edges.starts) - 1, rows), int)
    for e, (first, last) in enumerate(pairwise(edges.starts)):
        assert (np.diff(edges.rows[first:last].astype(int)) > 0).all()
        touched[e, edges.rows[first:last]] = 1
    return touched


@st.composite
def choices(draw):
    """Draw what can be: edges, Ω, the edges of a row, those that one edge meets."""
    edges, omega = draw(st.integers(1, 60)), draw(st.integers(1, 6))
    degree = draw(st.integers(1, edges))
    met = draw(st.integers(degree, min(edges, 1 + omega * (degree - 1))))
    return edges, omega, degree, met


def needed(edges, omega, degree, met):
    """Return the fewest rows, as the message of a choice of none says."""
    with pytest.raises(BadInput, match="expected .* rows or more") as error:
        generate(edges, 0, omega, degree / edges, met / edges, 0)
    return int(str(error.value).split()[1])


@settings(max_examples=80)
@given(choices(), st.integers(0, 50), st.integers(0, 99))
def test_omega_delta_and_rho_are_exact_from_the_fewest_rows_on(choice, more, seed):
    edges, omega, degree, met = choice
    rows = needed(*choice) + more
    found = generate(edges, rows, omega, degree / edges, met / edges, seed)
    assert found.starts.dtype == np.int64 and found.rows.dtype == np.uint32
    touched = incidence(found, rows)
    assert len(touched) == edges and set(touched.sum(1)) == {omega}
    assert touched.sum(0).max() == degree
    assert (touched @ touched.T > 0).sum(1).max() == met


@given(choices(), st.integers(0, 99))
def test_a_plane_parts_documents_whose_rows_have_length_1(choice, seed):
    edges, omega, degree, met = choice
    rows = needed(*choice)
    found = generate(edges, rows, omega, degree / edges, met / edges, seed)
    inputs, labels = documents(found, rows, seed)
    assert inputs.shape == (edges, rows) and inputs.dtype == labels.dtype == "float32"
    assert np.array_equal(inputs.indices, found.rows)
    assert np.array_equal(inputs.indptr, found.starts)
    assert set(labels) <= {-1, 1}
    np.testing.assert_allclose(np.square(inputs.toarray()).sum(1), 1, rtol=1e-5)
    normal = np.random.default_rng(seed).standard_normal(rows)  # the first numbers
    assert (labels * (inputs @ normal) > 0).all()


def test_both_labels_are_given_and_edges_and_values_are_of_the_seed():
    found, again, another = (generate(200, 2000, 5, 0.05, 0.2, k) for k in (0, 0, 1))
    assert np.array_equal(found.rows, again.rows)
    assert not np.array_equal(found.rows, another.rows)
    one, same, other = (documents(found, 2000, seed) for seed in (0, 0, 1))
    assert abs(one.targets.mean()) < 0.3
    assert np.array_equal(one.inputs.data, same.inputs.data)
    assert not np.array_equal(one.inputs.data, other.inputs.data)


@pytest.mark.parametrize(
    "choice, said",
    (
        *(((0, 9, 1, 0.5, 0.5), "edges=0"), ((9, 9, 0, 0.5, 0.5), "omega=0")),
        *(((10, 99, 2, n, 0.5), f"delta={n}") for n in (0.04, 1.5, float("nan"))),
        ((10, 99, 2, 0.5, 0.4), "ρ of Δ=0.5 to 0.9, got rho=0.4"),
        ((10, 99, 2, 0.5, 1.0), "ρ of Δ=0.5 to 0.9, got rho=1.0"),
        ((10, 9, 3, 0.2, 0.4), "rows=9"),
    ),
)
def test_choices_that_cannot_be_are_refused(choice, said):
    with pytest.raises(BadInput, match=said):
        generate(*choice, 0)
