"""dml.start and the doctor under mpirun."""

from dml import doctor


def test_two_ranks_are_one_run_of_jax_and_the_doctor_measures_their_messages(mpirun):
    ended = mpirun(2, "start_main")
    assert (ended.code, ended.err) == (0, "")
    *found, last = [line for line in ended.out.splitlines() if "Gloo" not in line]
    assert last == "2 processes, 2 devices, code 0"
    subjects = [line.split()[1] for line in found]
    assert subjects == [check.__name__.partition("_")[2] for check in doctor.CHECKS]
    assert "us a message" in found[-1]
