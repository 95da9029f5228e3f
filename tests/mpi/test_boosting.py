"""Boosting on real ranks has the model of one process."""

from dml.boosting import Data, train
from tests.boosting.tables import settings, table


def test_the_model_of_real_ranks_is_that_of_one_process(mpirun):
    x, y = table("logistic")
    want = train(None, Data(x, y), settings("logistic", row_share=0.8)).model.sha256
    ended = mpirun(3, "boosting_main")
    assert ended == (0, f"{want}\n", "", 0)
