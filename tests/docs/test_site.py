"""The site: it builds strictly, needs no network, and works in a browser from disk."""

import importlib.util
import re
import shutil

import pytest
from players import PAGES, write

from tests.commands import PYTHON, ROOT
from tests.commands import command as run

LOADS = r"<(?:link|img|script|iframe)[^>]*(?:href|src)=|url\(|@import "
NETWORK = re.compile(rf"""(?:{LOADS})["']?(?:https?:)?//""")
FIRST_HIT = """page => document.querySelector(".md-search-result__link")
    ?.getAttribute("href").includes(page)"""
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
mkdocstrings = pytest.mark.skipif(
    importlib.util.find_spec("mkdocstrings") is None, reason="pip install -e .[docs]"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the site."""
    folder = tmp_path_factory.mktemp("site")
    # without -q, which hides warnings from --strict
    build = PYTHON, "-m", "mkdocs", "build", "--strict", "-d", folder
    process = run(*build, SITE_SOURCE="false")  # colouring it takes three quarters
    assert process.returncode == 0, process.stderr
    return folder


@mkdocstrings
def test_the_site_needs_no_network_and_leads_to_functions(site):
    for path in [*site.rglob("*.html"), *site.rglob("*.css")]:
        assert not NETWORK.search(path.read_text("utf-8")), path
    chapter = (site / "allreduce.html").read_text("utf-8")
    api = "api/dml.wire.collectives.html"
    assert f'href="{api}#dml.wire.collectives.ring"' in chapter
    assert f'href="{api}#dml.wire.collectives.ring.ring_scatter"' in chapter
    assert 'id="dml.wire.collectives.ring.ring_scatter"' in (site / api).read_text()


@mkdocstrings
def test_a_chapter_shows_the_core_of_its_single_file(site):
    chapter = re.sub("<.*?>", "", (site / "allreduce.html").read_text("utf-8"))
    source = (ROOT / "experiments/single/allreduce.py").read_text("utf-8")
    start = source.index("def all_gather")
    assert source[start : source.index("\n\n\n", start)] in chapter
    assert "star, back   tree, and back" in chapter
    code = (site / "code/experiments/single/allreduce.py.html").read_text("utf-8")
    assert 'def <b id="all_gather">all_gather</b>(comm' in code


@mkdocstrings
@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
def test_pages_are_accessible_and_searched_from_disk(site):
    sync_api = pytest.importorskip("playwright.sync_api")
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox"]
        )
        for scheme, width in ("light", 1280), ("dark", 400):
            size = {"width": width, "height": 900}
            page = browser.new_page(viewport=size, color_scheme=scheme)
            for name in "allreduce", "code/experiments/single/glove.py":
                page.goto((site / f"{name}.html").as_uri())
                page.locator("details").evaluate_all("all => all.map(e => e.open = 1)")
                assert axe.Axe().run(page).violations_count == 0
                assert page.evaluate("document.documentElement.scrollWidth") == width
        for text, chapter in ("ZeRO", "data_parallel"), ("bounded staleness", "server"):
            page.goto((site / "index.html").as_uri())
            page.keyboard.press("/")
            page.keyboard.type(text)
            page.wait_for_function(FIRST_HIT, arg=f"{chapter}.html", timeout=1e6)
        browser.close()


def test_players_are_those_of_the_code(tmp_path):
    write(tmp_path)
    written = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    stored = {path.name: path.read_bytes() for path in PAGES.iterdir()}
    assert written == stored, "run python launch/players.py"
