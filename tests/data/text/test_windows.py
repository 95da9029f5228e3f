from functools import partial

import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from dml.data.text.tokens import SPECIAL, Tokens
from dml.data.text.windows import causal_windows, masked_windows, with_keys
from dml.types import BadInput

PAD, UNK, CLS, SEP, MASK = range(5)
WORDS = 1000


def corpus(count, separators=0.01):
    rng = np.random.default_rng(0)
    ids = rng.integers(len(SPECIAL), WORDS, count).astype(np.uint16)
    ids[rng.random(count) < separators] = SEP
    names = [*SPECIAL, *map(str, range(WORDS - len(SPECIAL)))]
    vocabulary = {name: number for number, name in enumerate(names)}
    return Tokens(ids, Tokenizer(WordLevel(vocabulary, "[UNK]")))


def restored(batch):
    """Put what was masked back."""
    tokens = batch.inputs.copy()
    np.put_along_axis(tokens, *batch.targets, 1)
    return tokens


@pytest.mark.parametrize("count", [4 * 10, 1237])
def test_bert_reads_every_token_once_and_no_held_out_one(count):
    made = corpus(count)
    training, held_out = masked_windows(made, 12, seed=1)
    batch = training.take(np.arange(training.count))
    seen = np.concatenate([restored(batch), restored(held_out)])
    assert np.array_equal(seen[:, 1:-1].ravel(), made.ids[: count // 10 * 10])
    assert (seen[:, 0] == CLS).all() and (seen[:, -1] == SEP).all()
    assert len(held_out.inputs) == max(1, count // 10 // 20)


@pytest.mark.parametrize("count", [4 * 11, 1237])
def test_gpt_reads_every_token_once_and_predicts_the_next_one(count):
    ids = corpus(count).ids
    training, held_out = causal_windows(ids, 10)
    parts = [training.take(np.arange(training.count)), held_out]
    inputs, targets = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    assert np.array_equal(inputs[:, 1:], targets[:, :-1])
    seen = np.concatenate([inputs, targets[:, -1:]], axis=1)
    assert np.array_equal(seen.ravel(), ids[: count // 11 * 11])
    assert inputs.dtype == targets.dtype == np.int32
    later = training.take(np.array([2 * training.count + 1]))
    assert np.array_equal(later.inputs[0], inputs[1])


@pytest.mark.parametrize(("length", "many"), [(128, 19), (12, 2), (4, 1), (3, 1)])
def test_exactly_so_many_tokens_of_each_window_are_predicted(length, many):
    made = corpus(20 * length)
    training, held_out = masked_windows(made, length, seed=0)
    for batch in (training.take(np.arange(15)), held_out):
        positions, tokens = batch.targets
        assert positions.shape == tokens.shape == (len(batch.inputs), many)
        assert (np.diff(positions) > 0).all()  # each position once
        assert positions.min() >= 1 and positions.max() <= length - 2
        dtypes = {array.dtype for array in (batch.inputs, positions, tokens)}
        assert dtypes == {np.dtype(np.int32)}


def test_masks_have_the_shares_of_the_paper():
    made = corpus(126 * 2000, separators=0)
    training, _ = masked_windows(made, 128, seed=3)
    inputs, (positions, tokens) = training.take(np.arange(training.count))
    shown = np.take_along_axis(inputs, positions, 1)
    drawn = shown.size  # 36,100
    # 4.5 standard deviations of a binomial: one sound generator of 1e5 fails each
    for share, seen in [(0.8, shown == MASK), (0.1, shown == tokens)]:
        likely = share + 0.1 / (WORDS - len(SPECIAL)) * (share == 0.1)
        spread = np.sqrt(share * (1 - share) / drawn)
        assert abs(seen.mean() - likely) < 4.5 * spread
    other = shown[(shown != MASK) & (shown != tokens)]
    assert abs(len(other) / drawn - 0.1) < 4.5 * np.sqrt(0.09 / drawn)
    assert other.min() >= len(SPECIAL)
    tenths = np.histogram(other, 10, (len(SPECIAL), WORDS))[0] / len(other)
    assert np.abs(tenths - 0.1).max() < 5 * np.sqrt(0.09 / len(other))
    # each of the 126 positions is predicted equally often
    often = np.bincount(positions.ravel(), minlength=128)[1:-1] / training.count
    share = 19 / 126
    assert abs(often.mean() - share) < 1e-12
    spread = np.sqrt(share * (1 - share) / training.count)
    assert np.abs(often - share).max() < 5 * spread
    # neighbours are chosen independently, but for the fixed number of them
    pairs = (np.diff(positions) == 1).sum() / training.count
    assert abs(pairs - 19 * 18 / 126) < 5 * np.sqrt(19 * 18 / 126 / training.count)


def test_a_draw_has_its_own_mask_whatever_batch_it_is_in():
    training, held_out = masked_windows(corpus(12600), 128, seed=3)
    wanted = np.array([7, 7 + training.count, 7 + 2 * training.count, 8])
    whole = training.take(wanted)
    for place, draw in enumerate(wanted):
        alone = training.take(np.array([draw]))
        assert np.array_equal(alone.inputs[0], whole.inputs[place])
        for one, other in zip(alone.targets, whole.targets, strict=True):
            assert np.array_equal(one[0], other[place])
    masks = {tuple(positions) for positions in whole.targets[0].tolist()}
    assert len(masks) == 4  # another epoch, another mask
    assert len({tuple(tokens) for tokens in restored(whole).tolist()}) == 2
    again, same = masked_windows(corpus(12600), 128, seed=4)
    assert not np.array_equal(again.take(wanted).targets[0], whole.targets[0])
    assert np.array_equal(same.inputs, held_out.inputs)  # for all the same test


def test_special_tokens_are_not_predicted_while_there_are_others():
    training, _ = masked_windows(corpus(5000, separators=0.6), 22, seed=0)
    batch = training.take(np.arange(training.count))
    many = (restored(batch)[:, 1:-1] >= len(SPECIAL)).sum(1)
    assert (many >= 3).mean() > 0.9
    specials = (batch.targets[1] < len(SPECIAL)).sum(1)
    assert np.array_equal(specials, np.maximum(0, 3 - many))


def test_windows_that_the_corpus_does_not_hold_are_bad_input():
    made = corpus(39)
    masked, causal = (
        partial(masked_windows, made, seed=0),
        partial(causal_windows, made.ids),
    )
    for cut, length, message in [
        (masked, 12, "39 tokens into 4 .* 3 to 11$"),
        (masked, 2, "length=2; pass"),
        (causal, 9, r"length=9; .* 1 to 8$"),
        (causal, 0, "length=0; pass"),
    ]:
        with pytest.raises(BadInput, match=message):
            cut(length)
    masked(11), causal(8)


def test_the_keys_of_dropout_depend_on_the_seed_the_draw_and_the_position_alone():
    plain, _ = causal_windows(corpus(1237).ids, 10)
    count, draws = plain.count, np.array([3, 9])
    inputs, targets = with_keys(plain, seed=0).take(draws)
    assert np.array_equal(inputs.tokens, plain.take(draws).inputs)
    assert np.array_equal(targets, plain.take(draws).targets)
    assert np.array_equal(inputs.keys[1:], with_keys(plain, 0).take(draws[1:])[0].keys)
    later, other = (
        with_keys(plain, 0).take(draws + count)[0],
        with_keys(plain, 1).take(draws)[0],
    )
    keys = [*inputs.keys.flat, *later.keys.flat, *other.keys.flat]
    assert len(set(keys)) == 3 * 2 * 10
