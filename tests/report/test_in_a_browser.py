"""The page as readers use it, in a browser without a window."""

import shutil

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import pm_match as pmm

sync_api = pytest.importorskip("playwright.sync_api", reason="it drives the browser")
BROWSER = next(filter(None, map(shutil.which, ("chromium", "google-chrome", "chrome"))), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")
SCRIPT = "<script>document.title = 'broken'</script>"


@pytest.fixture(scope="module")
def page_file(tmp_path_factory):
    """A page on two tables, with markup wherever a user's text goes."""
    n, m = 40, 30
    a, b = np.arange(n) % 3, np.arange(m) % 3
    draws = {}
    for name, own in {"a": a, "b": b}.items():
        labels = np.tile(own, (2, 10, 1))
        labels[:, :3, 1] = 2
        objects = [f"{name}{i:02d}" for i in range(len(own))]
        objects[0] = SCRIPT + name
        draws[f"cluster_{name}"] = xr.DataArray(
            labels, dims=("chain", "draw", f"{name}_object"), coords={f"{name}_object": objects}
        )
    data = {
        name: pd.DataFrame({"size": 10.0 * own, "</script><b>": [f"<i>{k}" for k in own]})
        for name, own in {"a": a, "b": b}.items()
    }
    path = tmp_path_factory.mktemp("page") / "match.html"
    titles = {"a": "shop <u>1", "b": "shop 2"}
    return pmm.report(xr.Dataset(draws), path, data=data, titles=titles, progressbar=False)


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def opened(browser, page_file):
    """Open the page offline; whatever goes wrong on it fails the test."""
    wrong, contexts = [], []

    def open_page(**options):
        context = browser.new_context(offline=True, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
        page.on("request", lambda asked: wrong.append(asked.url) if "http" in asked.url[:5] else 0)
        page.goto(page_file.as_uri())
        page.wait_for_selector("html[data-ready]", timeout=60_000)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not wrong


def test_an_object_is_found_by_typing(opened):
    page = opened()
    page.fill("#find", "A07")
    assert page.locator("#hits button").all_inner_texts() == ["shop <u>1: a07"]
    page.keyboard.press("Enter")
    card = page.locator("#object")
    assert card.locator("h3").first.inner_text() == "shop <u>1: a07"
    partners = card.locator(".partner button").all_inner_texts()
    assert len(partners) == 10  # those of its cluster, 1
    assert {int(name[1:]) % 3 for name in partners[:9]} == {1}
    assert card.locator(".partner").first.locator("span").last.inner_text() == "100%"
    # The rows side by side, and the next partner's when it is clicked.
    side = card.locator("table")
    assert "size\t10\t10" in side.inner_text()
    assert "</script><b>\t<i>1\t<i>1" in side.inner_text()
    card.locator(".partner button").nth(2).click()
    assert partners[2] in side.locator("th").all_inner_texts()[2]
    assert card.locator("[aria-pressed=true]").inner_text() == partners[2]
    page.fill("#find", "nothing like it")
    assert page.locator("#hits").inner_text() == "No object is called so."


def test_labels_are_text_everywhere(opened):
    page = opened()
    page.fill("#find", "<script>")
    page.locator("#hits button").first.click()
    assert page.locator("#object h3").first.inner_text() == f"shop <u>1: {SCRIPT}a"
    page.fill(".dt-search input", SCRIPT)
    assert page.locator("#objects tbody button").all_inner_texts() == [SCRIPT + "a", SCRIPT + "b"]
    assert page.title() == "Matching"
    assert page.locator("body u:not(.track u), body i:not(.track i):not(.either i)").count() == 0


def test_tables_are_sorted_and_searched(opened):
    page = opened()
    rows = page.locator("#objects tbody tr")
    assert rows.count() == 25
    first = page.locator("#objects tbody button").first.inner_text()
    assert first in ("a01", "b01")  # the least sure
    page.fill(".dt-search input", "b1")
    assert rows.count() == 10
    header = page.locator("#objects thead th", has_text="object")
    header.locator("[tabindex]").first.focus()
    page.keyboard.press("Enter")
    names = page.locator("#objects tbody button").all_inner_texts()
    assert names == sorted(names)
    page.locator("#objects tbody button").first.click()
    assert page.locator("#object h3").first.inner_text() == "shop 2: b10"


def test_the_matrix_is_read_by_pointer_and_by_keyboard(opened):
    page = opened()
    canvas, read = page.locator("#matrices canvas"), page.locator("#matrices .read")
    canvas.hover(position={"x": 3, "y": 3})
    assert "(cluster 0) and shop 2: " in read.inner_text()
    assert read.inner_text().endswith(": 100%")
    canvas.focus()
    for _ in range(29):
        page.keyboard.press("ArrowRight")
    assert read.inner_text().endswith("(cluster 2): 0%")
    page.keyboard.press("Enter")
    assert page.locator("#object").is_visible()


def test_by_night_on_a_phone_and_on_paper(opened):
    page = opened(color_scheme="dark", viewport={"width": 390, "height": 800})
    ground = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(ground) == "rgb(21, 23, 26)"
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.emulate_media(color_scheme="light")
    page.wait_for_function(f"{ground} == 'rgb(255, 255, 255)'")
    assert page.locator("details[open]").count() == 0
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details[open]").count() == 2
    assert len(page.pdf()) > 10_000
