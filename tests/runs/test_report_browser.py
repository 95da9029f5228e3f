"""The page of run folders in a real browser: it opens, sorts, filters, asks nobody."""

import shutil

import pytest

from dml.runs import folder as run_folders
from dml.runs.__main__ import main
from dml.runs.report.page import line_style
from tests.runs.test_report import EVIL, folder

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
CHROMIUM = CHROMIUM or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(not CHROMIUM, reason="no Chromium is installed")
sync_api = pytest.importorskip("playwright.sync_api")
ARGUMENTS = "--headless=new --no-sandbox --disable-gpu --disable-background-networking"
ARGUMENTS += " --disable-component-update --disable-sync --no-first-run"
# A script and a request that an image may not run or send.
SVG = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 40 30">
<image href="http://127.0.0.1:9/x.png"/><script>parent.evil = 1</script>
<rect width="40" height="30" fill="#07b"/></svg>"""


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        found = playwright.chromium.launch(
            executable_path=CHROMIUM, args=ARGUMENTS.split()
        )
        yield found
        found.close()


def written(place, paths):
    out = place / "report.html"
    main(["dml.runs", *map(str, paths), f"--out={out}"])
    return out.as_uri()


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """A page of eleven runs, one of which has no loss, and one evil words."""
    place = tmp_path_factory.mktemp("report")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_folders, "commit", lambda: "0123456789abcdef")
        for k in range(11):
            flags = {"lr": 10.0**-k, "n": 2**k, "way": EVIL if k == 1 else "ring"}
            rows = [
                {"step": s, "loss": (k + 1) / s, "seconds": 0.1} for s in range(1, 300)
            ]
            summary = {f"part_{part}": part * k for part in range(12)}
            summary |= {"loss": ((k * 7) % 10) * 1.5} if k < 10 else {}
            path = folder(place / f"runs/run-{k}", flags, rows, summary)
            (path / "loss.svg").write_text(SVG)
            (path / "timeline.svg").write_text(SVG)
    (place / "runs/broken").mkdir()
    (place / "runs/broken/config.json").write_text("{")
    return written(place, [place / "runs"])


@pytest.fixture
def opened(browser):
    """Return what opens an address; nothing may fail, nor be asked for, meanwhile."""
    troubles, pages = [], []

    def opened(address, **options):
        page = browser.new_page(**options)
        pages.append(page)
        page.on("console", lambda said: troubles.append(said.text))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("request", lambda asked: asks(asked.url))
        page.goto(address)
        return page

    def asks(url):
        if not url.startswith(("file:", "data:")):
            troubles.append(url)

    yield opened
    for page in pages:
        page.wait_for_timeout(20)
        page.close()
    assert not troubles


def column(page, name):
    """Return the texts of a column's cells that are shown, from the top."""
    return page.evaluate(
        """(name) => {
        const heads = [...document.querySelectorAll("thead th")];
        const at = heads.findIndex((head) => head.textContent === name);
        return [...document.querySelectorAll("tbody tr")]
            .filter((row) => row.checkVisibility())
            .map((row) => row.cells[at].textContent); }""",
        name,
    )


def until(page, condition):
    """Wait for what the page's script does; wait_for_function is against its policy."""
    while not page.evaluate(condition):
        page.wait_for_timeout(10)


def head(page, name):
    return page.locator("thead th", has=page.get_by_role("button", name=name)).first


def test_a_click_sorts_by_numbers_and_back_with_what_is_missing_last(opened, address):
    page = opened(address)
    before = column(page, "loss")
    for state, reverse in (("ascending", False), ("descending", True)):
        head(page, "loss").get_by_role("button").click()
        assert head(page, "loss").get_attribute("aria-sort") == state
        *found, last = column(page, "loss")
        assert last == "" and [*map(float, found)] == sorted(
            map(float, found), reverse=reverse
        )
        assert found != before[:-1]
    head(page, "--n").get_by_role("button").click()
    assert column(page, "--n") == [str(2**k) for k in range(11)]
    assert head(page, "loss").get_attribute("aria-sort") == "none"


def test_rows_are_filtered_by_words_and_whole_values_and_columns_are_chosen(
    opened, address
):
    page = opened(address)
    for wanted, many in (("run-3", 1), ("--n=1", 1), ("ring RUN-", 10), ("zzz", 0)):
        page.get_by_label("Filter").fill(wanted)
        until(page, f"view.shown.filter(Boolean).length === {many}")
        assert len(column(page, "run")) == many
        assert page.locator("#count").text_content() == f"{many} of 11 runs"
    assert not head(page, "part_11").is_visible()
    page.locator("#columns summary").click()
    page.get_by_label("part_11").check()
    page.get_by_role("checkbox", name="loss").uncheck()
    assert head(page, "part_11").is_visible() and not head(page, "loss").is_visible()


def test_a_run_s_figures_are_images_that_run_and_fetch_nothing(opened, address):
    page = opened(f"{address}#run-2")
    assert page.locator("details[open]#run-2").count() == 1
    until(
        page,
        "[...document.querySelectorAll('#run-2 img')].every((i) => i.naturalWidth)",
    )
    assert page.locator("img[src]").count() == 2  # the others wait for their turn
    assert page.evaluate("window.evil") is None
    assert page.locator("#run-2 h3").all_text_contents()[:2] == ["Figures", "Timeline"]


def test_the_lines_of_24_runs_differ(opened, address):
    script = "[...Array(24).keys()].map((k) => styleOf(k % STYLES))"
    styles = opened(address).evaluate(script)
    assert styles == [line_style(k) for k in range(24)]  # of the rows
    assert len(set(styles)) == 24


def test_runs_of_several_seeds_have_one_colour_and_one_mean_curve(opened, tmp_path):
    for seed, steps in ((0, (1, 2, 3)), (1, (1, 3)), (2, (2, 3))):
        rows = [{"step": s, "loss": 10.0 * seed + s} for s in steps]
        folder(tmp_path / f"x/{seed}", {"seed": seed}, rows)
    folder(tmp_path / "x/other", {"lr": 1}, [{"step": s, "loss": s} for s in (1, 2)])
    page = opened(written(tmp_path, [tmp_path / "x"]))
    assert page.evaluate("view.colour") == [0, 0, 0, 1]
    page.get_by_label("Mean over seeds").check()
    page.locator(".chart").scroll_into_view_if_needed()
    until(page, "charts[0].shown.length === 2")
    shown = page.evaluate(
        "charts[0].shown.map((c) => [c.runs, [...c.xs[0]], [...c.ys]])"
    )
    assert shown == [[[0, 1, 2], [2, 3], [12, 13]], [[3], [1, 2], [1, 2]]]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_each_theme_is_accessible_and_the_button_gives_the_other(
    opened, address, scheme
):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    page = opened(f"{address}#run-2", color_scheme=scheme)
    page.locator("#columns summary").click()
    found = axe.Axe().run(page)
    assert not found.response["violations"], found.generate_report()
    paper = "getComputedStyle(document.documentElement).backgroundColor"
    before = page.evaluate(paper)
    page.locator("#theme").click()
    assert page.evaluate(paper) != before


def test_hundreds_of_runs_are_all_there(opened, tmp_path, monkeypatch):
    monkeypatch.setattr(run_folders, "config", lambda flags, ranks: {"flags": flags})
    rows = [{"step": step, "loss": 1 / step} for step in range(1, 4)]
    for k in range(300):
        folder(tmp_path / f"x/{k:03}", {"k": k}, rows, {"loss": k / 7})
    page = opened(written(tmp_path, [tmp_path / "x"]))
    assert page.locator("tbody tr").count() == 300
    assert page.locator("#each > details").count() == 300
    assert len(column(page, "run")) == 200
    page.get_by_label("Filter").fill("--k=277")
    until(page, "view.shown.filter(Boolean).length === 1")
    assert column(page, "run") == ["277"]
    page.get_by_label("Filter").fill("")
    page.get_by_role("button", name="Show all rows").click()
    assert len(column(page, "run")) == 300
    assert page.evaluate("unpack(data.measures[0]).length") == 300
