"""The player: recorded contents, the data of the page, and the page in a browser."""

import json
import re
import shutil
from collections import Counter
from xml.etree import ElementTree

import numpy as np
import pytest
from players import PAGES
from studies.allreduce import film

from dml.figures import player
from dml.sim.links import RunningLinks
from dml.sim.networks.named import network
from dml.types import Interval, Message, Timeline
from dml.wire.collectives.table import COLLECTIVES

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
EVERY = [
    f"{collective}:{name}"
    for collective, table in COLLECTIVES.items()
    for name, one in table.items()
    if one.schedule and name != "hierarchical"
]
SQUARE = "0 1\n1 2\n2 3\n0 3 2\n0 4\n2 4\nranks 0 1 2 3\n"  # and a router without ranks


def record(path, text, size=4, links="uniform", nbytes=1 << 20):
    count = film.write(path, text, size, links, nbytes)
    page = path.read_text()
    assert not re.findall(r"(?:src|href)=|https?://(?!www\.w3\.org)", page)
    data = json.loads(re.search(r'type="application/json">(.*?)</script>', page)[1])
    assert len(data["messages"]) == count
    return data


def last(data):
    """Return the contents of each rank's buffer at the end."""
    return {rank: counts for rank, _, counts in data["states"]}


@pytest.mark.parametrize("text", EVERY)
def test_buffers_end_with_all_contributions(text, tmp_path):
    data = record(tmp_path / "watch.html", text)
    assert data["messages"] and data["ranks"] == 4
    ends = last(data)
    collective = text.split(":")[0]
    if collective == "allreduce":
        assert all(set(counts) == {4} for counts in ends.values())
    elif collective == "reduce":
        assert set(ends[0]) == {4}
    elif collective == "reduce_scatter":
        assert all(set(ends[r][8 * r : 8 * r + 8]) == {4} for r in range(4))
    elif collective.endswith("scan"):
        out = int(collective == "exclusive_scan")  # rank 0 keeps its buffer
        assert all(set(ends[r]) == {max(1, r + 1 - out)} for r in range(4))
    else:
        assert all(set(counts) == {1} for counts in ends.values())


def test_messages_of_a_ring_gain_a_contribution_in_each_round(tmp_path):
    data = record(tmp_path / "watch.html", "ring")
    contents = sorted(message[5] for message in data["messages"])
    # 4 messages in each of 3 rounds of 1, 2, 3 contributions, then 3 rounds of sums
    assert contents == [1] * 4 + [2] * 4 + [3] * 4 + [4] * 12
    assert {message[4] for message in data["messages"]} == {1 << 18}
    assert all(0 <= one[2] <= one[3] <= 1 for one in data["messages"])


def test_time_does_not_depend_on_the_words_of_the_buffer(tmp_path):
    """8 ranks: 2(p-1) rounds of α + n/p·β, and (p-1)n/p·γ."""
    data = record(tmp_path / "watch.html", "ring", 8, "1e-6,1e-9,1e-10", 8 << 20)
    part = 1 << 20
    expected = 14 * (1e-6 + part * 1e-9) + 7 * part * 1e-10
    assert data["seconds"] == pytest.approx(expected, rel=1e-9)


def test_ranks_of_a_host_share_memory_and_links(tmp_path):
    data = record(tmp_path / "watch.html", "hierarchical", 8, "hosts:4x2")
    hosts = {(message[0] // 2, message[1] // 2) for message in data["messages"]}
    assert all(source != dest for source, dest in hosts)
    assert all(set(counts) == {8} for counts in last(data).values())
    data = record(tmp_path / "watch.html", "circulant", 8, "hosts:4x2")
    names, at = data["network"]["names"], data["network"]["at"]
    assert [names[node] for node in at[::2]] == [
        f"ranks {rank}-{rank + 1}" for rank in (0, 2, 4, 6)
    ]
    routes = zip(data["messages"], data["network"]["routes"], strict=True)
    lengths = {(one[0] // 2 == one[1] // 2, len(route)) for one, route in routes}
    assert lengths == {(True, 0), (False, 2)}


def link_numbers(drawn, links):
    """Return the number of each drawn link, found by the routers in the page."""
    found = [tuple(ends) for ends in links.ends().tolist()]

    def router(node):
        if node in drawn["at"]:
            return int(links.at(np.array([drawn["at"].index(node)]))[0])
        return int(drawn["names"][node].removeprefix("router "))

    return [found.index((router(link[0]), router(link[1]))) for link in drawn["links"]]


@pytest.mark.parametrize(
    ("links", "size"),
    [
        *(("ring:8", 8), ("torus:3x4", 12), ("torus:2x2x3", 12), ("torus:3", 3)),
        *(("torus:2x2x2x2", 16), ("hosts:3x4", 12), ("hosts:3x1", 3)),
        *(("fat_tree:4", 16), ("dragonfly:1", 6), ("slim_fly:3", 54)),
        *(("graph:{file}", 4), ("graph:{file},3", 12)),
    ],
)
def test_links_of_a_page_are_those_of_the_simulator(links, size, tmp_path, monkeypatch):
    (tmp_path / "square").write_text(SQUARE)
    links = links.format(file=tmp_path / "square")
    seconds = Counter()  # by link, in the simulator

    def take_link(self, link, nbytes, time):
        entered = max(time, self.free[link])
        left = take(self, link, nbytes, time)
        seconds[link] += self.free[link] - entered
        return left

    take = RunningLinks.take_link
    monkeypatch.setattr(RunningLinks, "take_link", take_link)
    data = record(tmp_path / "watch.html", "circulant", size, links)
    drawn, links = data["network"], network(links, size)
    numbers = link_numbers(drawn, links)
    assert sorted(numbers) == list(range(len(links.ends())))
    for (source, dest, *_), route in zip(
        data["messages"], drawn["routes"], strict=True
    ):
        paths = links.paths(np.array([source]), np.array([dest]))
        assert [numbers[link] for link in route] == paths.links.tolist()
    used = [seconds[number] / data["seconds"] for number in numbers]
    assert drawn["used"] == pytest.approx(used, abs=1e-4) and max(used) > 0
    places = np.array(drawn["places"])
    assert np.abs(places).max() <= 1
    assert len(np.unique(places.round(2), axis=0)) == len(drawn["names"])


def test_a_network_without_links_between_ranks_is_not_drawn(tmp_path):
    for links in "uniform", "hosts:1x4":
        assert record(tmp_path / "a.html", "ring", 4, links)["network"] is None


def test_pages_of_timelines_have_phases_and_no_states(tmp_path):
    timeline = Timeline(
        [Interval(0, "gradient", 1.0, 2.0), Interval(1, "Recv", 1.0, 3.0)],
        [Message(0, 1, 5, 80, 2.0, 3.0)],
    )
    data = player.export(player.Film("run", "text", 2, timeline))
    assert data["messages"] == [[0, 1, 0.5, 1.0, 80, 0]]
    assert data["phases"] == [[0, "gradient", 0.0, 0.5], [1, "Recv", 0.0, 1.0]]
    assert data["seconds"] == 2.0 and not data["states"] and not data["dropped"]


def test_no_name_ends_the_data(tmp_path):
    timeline = Timeline([Interval(0, "</script><b>", 0.0, 1.0)], [])
    player.write(tmp_path / "a.html", player.Film("<i>", "", 1, timeline))
    text = (tmp_path / "a.html").read_text()
    assert text.count("</script>") == 2 and "<title>&lt;i&gt;</title>" in text
    data = json.loads(re.search(r'type="application/json">(.*?)</script>', text)[1])
    assert data["phases"][0][1] == "</script><b>"


def test_later_messages_are_left_out(monkeypatch):
    monkeypatch.setattr(player, "MAX_MESSAGES", 2)
    messages = [Message(0, 1, 0, 8, t, t + 1.0) for t in (2.0, 0.0, 1.0)]
    data = player.export(player.Film("run", "", 2, Timeline([], messages)))
    assert data["dropped"] == 1
    assert [message[2] for message in data["messages"]] == [0.0, 0.5]


@pytest.fixture(scope="module")
def browser():
    """A headless browser."""
    sync_api = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox"]
        )
        yield browser
        browser.close()


def test_the_page_plays_in_a_browser(browser, tmp_path):
    path = tmp_path / "watch.html"
    film.write(path, "swing", 8, "uniform", 1 << 22)
    page = browser.new_page(viewport={"width": 400, "height": 900})
    page.goto(f"{path.as_uri()}#t=1")
    assert "48 messages received, 0 in transit" in page.inner_text("#now")
    fills = "all => all.map(cell => cell.getAttribute('fill'))"
    strips = page.locator("#stage g path").evaluate_all(fills)
    assert len(strips) == 8 and len(set(strips)) == 1  # one colour
    page.keyboard.press("Home")
    assert "0 messages received" in page.inner_text("#now")
    # a line is as wide as the bytes in transit on it
    widths = "all => all.map(line => Number(line.getAttribute('stroke-width') || 1))"
    page.goto(f"{path.as_uri()}#t=0.1")
    drawn = page.locator("#stage > g line").evaluate_all(widths)
    assert sum(width > 2 for width in drawn) == 4 and min(drawn) == 1
    page.close()


@pytest.mark.parametrize("links", ["torus:4x4", "hosts:4x4"])
def test_links_have_the_load_of_messages_in_transit(browser, links, tmp_path):
    path = tmp_path / "watch.html"
    data = record(path, "halving_doubling", 16, links)
    routes = data["network"]["routes"]
    events = sorted({time for one in data["messages"] for time in one[2:4]})
    moments = [
        (start + end) / 2 for start, end in zip(events, events[1:], strict=False)
    ]
    page, most = browser.new_page(), 0
    page.goto(path.as_uri())
    widths = "all => all.map(one => Number(one.getAttribute('stroke-width')))"
    for moment in [*moments[::3], moments[5], 0, 1]:  # also backwards
        loads = Counter()
        for one, route in zip(data["messages"], routes, strict=True):
            if one[2] <= moment < one[3]:
                loads.update(route)
        page.evaluate(f"location.hash = 't={moment:.9f}'")
        page.wait_for_function(f"Math.abs(now - {moment}) < 1e-8")
        drawn = page.locator("#stage > g:first-of-type > path").evaluate_all(widths)
        expected = [min(loads[link], 2) for link in range(len(drawn))]
        assert [(1.5, 4, 7).index(width) for width in drawn] == expected
        idle, one, several = (expected.count(load) for load in range(3))
        text = f"Links: {idle} idle, {one} with one message, {several} with several"
        assert text in page.inner_text("#now")
        most = max(most, several)
    assert most >= 4 and not loads
    used = data["network"]["used"]
    first = used.index(max(used))
    assert f"for {100 * max(used):.0f} % of the time" in page.inner_text("#busiest")
    title = page.locator("#stage > g:first-of-type > path title").nth(first)
    assert title.text_content().split(",")[0] in page.inner_text("#busiest")
    page.close()


def test_a_frame_changes_only_what_moves(browser, tmp_path):
    path = tmp_path / "watch.html"
    data = record(path, "swing", 64, "torus:8x8")
    events = sorted({time for one in data["messages"] for time in one[2:4]})
    start, end = max(
        zip(events, events[1:], strict=False), key=lambda ab: ab[1] - ab[0]
    )
    page = browser.new_page()
    page.goto(f"{path.as_uri()}#t={start + (end - start) / 3:.9f}")
    changed = page.evaluate(
        """time => new Promise(resolve => {
            new MutationObserver((all) => resolve({
                nodes: new Set(all.map(one => one.target)).size,
                kinds: [...new Set(all.map(one => one.attributeName))].sort(),
            })).observe(stage, { attributes: true, childList: true, subtree: true });
            go(time);
        })""",
        start + (end - start) / 2,
    )
    transit = sum(one[2] <= start < one[3] for one in data["messages"])
    assert changed == {"nodes": transit + 1, "kinds": ["cx", "cy", "x1", "x2"]}
    # 256 links with titles, 64 dots, and of each of 64 ranks a disc and a strip
    assert page.locator("#stage *").count() < 1500
    # a path of phases is at most a part of the time wider than its longest phase
    boxes = "all => all.map(one => one.getBBox().width)"
    widest = max(page.locator("#stage > path").evaluate_all(boxes))
    longest = max(end - start for _, _, start, end in data["phases"])
    assert widest < 760 * (longest + 1 / 64) + 1
    page.close()


@pytest.mark.parametrize("name", sorted(path.stem for path in PAGES.iterdir()))
def test_every_page_plays_by_keyboard_and_saves_frames(browser, name, tmp_path):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    path = PAGES / f"{name}.html"
    text = re.search(r'type="application/json">(.*?)</script>', path.read_text())[1]
    data, said = json.loads(text), []
    page = browser.new_page(viewport={"width": 400, "height": 900})
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(f"{path.as_uri()}#t=0.5")
    assert page.input_value("#clock") == "5000"
    page.keyboard.press("End")
    assert f" {len(data['messages'])} messages received, 0 in" in page.inner_text(
        "#now"
    )
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Space")
    page.wait_for_function("window.frames_drawn > 3")
    page.keyboard.press("Space")
    assert re.search(r"#t=0\.\d+", page.url)
    with page.expect_download() as saved:
        page.get_by_text("Save SVG").click()
    saved.value.save_as(tmp_path / "frame.svg")
    frame = ElementTree.parse(tmp_path / "frame.svg").getroot()
    discs = [one for one in frame.iter() if one.tag.endswith("}text")]
    assert {one.text for one in discs} == set(data["names"])
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    for scheme in "light", "dark":
        page.emulate_media(color_scheme=scheme)
        assert axe.Axe().run(page).violations_count == 0
    assert not said
    page.close()
