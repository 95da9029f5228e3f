"""Catch against the rules of bsuite, written as a board."""

import numpy as np

from dml.environments.catch import CATCH


def play(choose, count=50):
    """Yield (boards, outcome or None) of one episode of each copy."""
    copies = CATCH.make(range(count))
    boards = copies.reset().reshape(count, 10, 5).copy()
    yield boards, None
    while True:
        outcome = copies.step(choose(boards))
        boards = outcome.observations.reshape(count, 10, 5).copy()
        yield boards, outcome
        if outcome.terminated.any():
            return


def paddle(boards):
    return boards[:, 9].argmax(1)


def ball(boards):
    return boards[:, :9].any(1).argmax(1)


def follow(boards):
    return 1 + np.sign(ball(boards) - paddle(boards))


def test_the_ball_falls_for_nine_steps_and_the_paddle_moves_by_one():
    for move in (-1, 0, 1):
        column = 2
        columns = None
        for row, (boards, outcome) in enumerate(
            play(lambda boards, move=move: np.full(len(boards), 1 + move))
        ):
            column = min(max(column + (move if row else 0), 0), 4)
            columns = ball(boards) if row == 0 else columns
            expected = np.zeros((50, 10, 5))
            expected[np.arange(50), row, columns] = 1
            expected[:, 9, column] = 1
            assert (boards == expected).all()
            if outcome is not None:
                last = row == 9
                caught = np.where(columns == column, 1.0, -1.0)
                assert (outcome.terminated == last).all()
                assert not outcome.truncated.any()
                assert (outcome.rewards == (caught if last else 0)).all()
        assert row == 9 == CATCH.limit


def test_the_paddle_catches_each_ball_by_following_it():
    *_, (_, outcome) = play(follow)
    assert (outcome.rewards == 1).all()


def test_all_columns_are_equally_likely():
    boards = CATCH.make(range(5000)).reset().reshape(-1, 10, 5)
    counts = np.bincount(boards[:, 0].argmax(1), minlength=5)
    assert abs(counts - 1000).max() < 4 * np.sqrt(800)
