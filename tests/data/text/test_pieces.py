import bz2
import gzip
import re
import tracemalloc
from pathlib import Path

import pytest

from dml.data.text.generated import generate
from dml.data.text.pieces import pieces, split_words
from dml.types import BadInput

PAGE = "<page><title>{}</title>{}<revision><text>{}</text></revision></page>\n"
OPEN = '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11">\n'


def write(path, content):
    """Write a file, by its suffix compressed, and return its path."""
    content = content.encode() if isinstance(content, str) else content
    press = {".gz": gzip.compress, ".bz2": bz2.compress}.get(path.suffix, bytes)
    path.write_bytes(press(content))
    return path


def read(*paths, nbytes=1 << 20):
    return [piece() for piece in pieces(paths, nbytes)]


@pytest.fixture
def documents():
    return list(generate(words=500, documents=60, seed=1))


@pytest.mark.parametrize("suffix", ["", ".txt", ".gz", ".bz2"])
@pytest.mark.parametrize("nbytes", [7, 8, 9, 300, 1 << 20])
def test_joined_pieces_are_the_text(tmp_path, suffix, nbytes):
    texts = ["über den\tFluß\n\n a b c \n", "\n", "", "d e", "f ", "g h\n"]
    paths = [write(tmp_path / f"{n}{suffix}", text) for n, text in enumerate(texts)]
    ended = [text + "\n" * (text[-1:] not in ("", "\n")) for text in texts]
    found = read(*paths, nbytes=nbytes)
    assert "".join(found) == "".join(ended)
    for path in paths:  # where a text is cut does not depend on how it is stored
        write(path.with_suffix(".same"), dict(zip(paths, texts, strict=True))[path])
    assert read(*(path.with_suffix(".same") for path in paths), nbytes=nbytes) == found


def test_pieces_hold_whole_documents_and_long_ones_are_cut_between_words(
    tmp_path, documents
):
    text = "\n".join(documents) + "\n"
    longest = max(map(len, documents))
    found = read(write(tmp_path / "a", text), nbytes=2 * longest)
    assert "".join(found) == text
    assert all(piece.endswith("\n") for piece in found)
    assert all(longest < len(piece) <= 2 * longest for piece in found[:-1])

    text = "short\n" + " ".join(documents) + "\nshort again"
    found = read(write(tmp_path / "a", text), nbytes=500)
    assert len(found) > len(text) / 500
    assert "".join(found) == text + "\n"
    assert [word for piece in found for word in piece.split()] == text.split()
    ends = [at for at, piece in enumerate(found) if "\n" in piece]
    assert ends == [0, len(found) - 1]


def test_only_line_feeds_and_files_end_documents(tmp_path):
    path = write(tmp_path / "a", "\ufeffone\r\ntwo\x0bthree\u2028four\x85five\rsix\n")
    assert read(path) == ["one\ntwo\x0bthree\u2028four\x85fivesix\n"]
    words = ["one", "\n", "two", "three", "four", "fivesix", "\n"]
    assert split_words(read(path)[0]) == words
    paths = [write(tmp_path / "a", "abc "), write(tmp_path / "b", "def")]
    assert "".join(read(*paths, nbytes=4)) == "abc \ndef\n"


def test_memory_is_a_few_pieces_even_for_one_long_line(tmp_path):
    path = tmp_path / "long.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(300):
            file.write(b"every word counts " * 4000)
    tracemalloc.start()
    count = sum(len(piece()) for piece in pieces([path], 1 << 18))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 300 * 4000 * 18 + 1
    assert peak < 8 << 18


def test_a_skipped_piece_is_neither_decoded_nor_cleaned(tmp_path, monkeypatch):
    plain = write(tmp_path / "a", b"good words\n\xff\xfe\n")
    dump = write(tmp_path / "b.xml", OPEN + PAGE.format("A", "", "x") + "</mediawiki>")
    monkeypatch.setattr("gensim.corpora.wikicorpus.filter_wiki", lambda _: 1 / 0)
    first, *others = pieces([plain, dump], 11)
    assert first() == "good words\n"
    assert len(others) == 2
    for piece, error in zip(others, (BadInput, ZeroDivisionError), strict=True):
        with pytest.raises(error):
            piece()


@pytest.mark.parametrize("name", ["dump.xml", "dump.xml.bz2", "dump.gz"])
def test_a_wiki_dump_gives_an_article_a_line(tmp_path, name):
    pages = [
        ("Cats", "<ns>0</ns>", "'''Cats''' are\n\n[[animal|animals]]{{citation}}."),
        ("Cat", '<ns>0</ns><redirect title="Cats"/>', "#REDIRECT [[Cats]]"),
        ("Talk:Cats", "<ns>1</ns>", "Dogs are nicer."),
        ("Empty", "<ns>0</ns>", ""),
        ("Dogs", "<ns>0</ns>", "Dogs bark &amp; bite."),
    ]
    content = OPEN + "".join(PAGE.format(*page) for page in pages) + "</mediawiki>"
    path = write(tmp_path / name, content)
    expected = ["Cats are animals.\n", "Dogs bark & bite.\n"]
    assert [text.replace("'", "") for text in read(path, nbytes=1)] == expected
    assert len(read(path)) == 1


def test_an_old_wiki_dump_has_namespaces_in_titles(tmp_path):
    content = (
        '<mediawiki><siteinfo><namespaces><namespace key="0"/><namespace key="1">Talk'
        "</namespace></namespaces></siteinfo>"
        + PAGE.format("Talk:Cats", "", "wrong")
        + PAGE.format("Cat", "", "#redirect [[Cats]]")
        + PAGE.format("2001: A Space Odyssey", "", "right")
    )
    assert read(write(tmp_path / "a.xml", content + "</mediawiki>")) == ["right\n"]


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("a", b"fine words\n" * 9 + b"\xfc", "a: expected UTF-8, got .* at byte 99; "),
        ("a", b"fine\nm\xfcller\n", "expected UTF-8, got 0xfc at byte 6; pass"),
        ("a", b"fine\nfine\x00\n", "expected text, got a zero byte at byte 9; pass"),
        ("a", b"\0" * 99, "expected text, got a zero byte at byte 0; pass"),
        ("a", b"fine\n" + b"x" * 99, "20 bytes without white space from byte 5"),
        ("a", b" \n\t\n", "expected text, got none in .*a; pass a corpus with words"),
        ("a", b"", "expected text, got none in .*a; pass a corpus"),
        ("a.xml", OPEN + "<page>", "text at .*a.xml, got .*; pass a readable"),
        ("a.xml", OPEN + "</mediawiki>", "none in .*a.xml; pass a corpus with"),
    ],
)
def test_what_is_not_text_is_bad_input(tmp_path, name, content, message):
    with pytest.raises(BadInput, match=message):
        read(write(tmp_path / name, content), nbytes=20)


def test_missing_and_broken_files_are_bad_input(tmp_path):
    whole = gzip.compress(bytes(range(32, 127)) * 99)
    (tmp_path / "plain.gz").write_bytes(b"not compressed\n")
    (tmp_path / "short.gz").write_bytes(whole[:-9])
    (tmp_path / "wrong.gz").write_bytes(whole[:20] + b"\xff" * 9 + whole[29:])
    (tmp_path / "plain.bz2").write_bytes(b"not compressed\n")
    (tmp_path / "folder").mkdir()
    for path in [*tmp_path.iterdir(), Path("missing")]:
        with pytest.raises(BadInput, match=f"expected text at .*{path.name}, got .*; "):
            read(path)
    with pytest.raises(BadInput, match="got none in no file"):
        read()


PATTERNS = [r"\w+", r"\S+", r"[a-z0-9]+", r"[^ ]+", r"[a-z ]+", r"(?:\w|')+"]
PATTERNS += [r"(a|b)c?"]


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_tokens_are_the_matches_of_each_document(pattern, lower):
    odd = "".join(map(chr, range(1, 128))) + " Straße ÉTÉ x\u2028y İ a_b don't ac\n\n b"
    for text in (odd, odd.replace("\n", " "), "", "\n", "A b\n\nB1-c\n", "\n x"):
        expected = []
        for line in re.split("(\n)", text.lower() if lower else text):
            matches = [match.group() for match in re.finditer(pattern, line)]
            expected += ["\n"] if line == "\n" else matches
        assert split_words(text, pattern, lower) == expected
        assert split_words(text, pattern).count("\n") == text.count("\n")
    for wrong, why in [("[a-z", "unterminated"), (r"\w*", "empty"), (r"\b", "empty")]:
        with pytest.raises(BadInput, match=f"got pattern=.*{why}"):
            split_words("a b", wrong)


def test_generated_documents_repeat_by_seed_and_follow_zipf(documents):
    assert documents == list(generate(words=500, documents=60, seed=1))
    assert documents != list(generate(words=500, documents=60, seed=2))
    words = " ".join(documents).split()
    assert len(documents) == 60 and all(documents)
    # the first word is twice as frequent as the second, four times as the fourth
    counts = [words.count(f"w{number}") for number in (1, 2, 4)]
    assert counts[0] / counts[1] == pytest.approx(2, rel=0.2)
    assert counts[0] / counts[2] == pytest.approx(4, rel=0.3)
