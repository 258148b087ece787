"""The page of a matrix in headless Chromium, on a desk and on a phone: tox -e browser installs both and runs this."""

import chromium
import pytest
from made_matrix import COLUMNS, HOSTILE, NASTY, made_document

from cpbcg_ref.report.matrixpage import as_html

playwright = pytest.importorskip("playwright.sync_api", reason="tox -e browser runs the page in Chromium")

DESK, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
OVERFLOW = "td.fail.MUST a >> nth=0"


@pytest.fixture(scope="module")
def browser():
    if not (program := chromium.find()):
        pytest.skip("no Chromium is installed: tox -e browser installs one")
    with playwright.sync_playwright() as running:
        # The sandbox needs a user that is not root.
        yield running.chromium.launch(executable_path=program, args=["--no-sandbox"])


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    file = tmp_path_factory.mktemp("page") / "matrix.html"
    file.write_text(as_html(made_document(*COLUMNS, NASTY)), "utf-8")
    return file.as_uri()


@pytest.fixture
def opened(browser, address):
    """opened(...) -> the page in a window of its own; whatever it complained about or asked for fails the test."""
    complaints, contexts = [], []

    def open_page(viewport=DESK, **options):
        contexts.append(browser.new_context(viewport=viewport, **options))
        page = contexts[-1].new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(f"dialog {dialog.message}"))
        page.on("request", lambda request: request.url == address or complaints.append(request.url))
        page.goto(address)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []


def visible(page, what):
    return [one.inner_text() for one in page.locator(what).all() if one.is_visible()]


def test_it_opens_and_asks_for_nothing_else(opened):
    page = opened()
    assert page.title() == "cpbcg: conformance matrix"
    assert len(visible(page, "tr.row")) == 7
    assert HOSTILE in visible(page, "th[scope=colgroup]")
    assert page.locator("#filter").is_visible()


def test_a_cell_expands_its_counterexample_below_its_row_and_closes_it_again(opened):
    page = opened()
    page.locator(OVERFLOW).click()
    (more,) = visible(page, "tr.more")
    assert "rank  rows  needs" in more
    assert "@example(case=ReplayCase(" in more
    assert "cpbcg check sglang==0.5.17 --select capacity.no-overflow" in more
    row = page.locator("tr.row", has=page.locator("tr.row + tr.more"))
    assert page.evaluate("document.querySelector('tr.more').previousElementSibling.innerText").startswith("capacity")
    assert row.count() == 0
    assert page.locator(OVERFLOW).get_attribute("aria-expanded") == "true"
    assert page.url.endswith("matrix.html")
    page.locator("td.fail.SHOULD a >> nth=0").click()
    assert ["rank 1 waited 12 passes" in one for one in visible(page, "tr.more")] == [True]
    page.locator("td.fail.SHOULD a >> nth=0").click()
    assert visible(page, "tr.more") == []


def test_the_whole_cell_can_be_pressed_and_the_keyboard_does_the_same(opened):
    page = opened(PHONE)
    cell = page.locator("tr.row", has_text="safe-").locator("td.error").first  # its row is higher than its link
    cell.scroll_into_view_if_needed()
    cell.click(position={"x": 3, "y": cell.bounding_box()["height"] - 3})
    assert "KeyError: 'cp'" in visible(page, "tr.more")[0]
    page.locator(OVERFLOW).focus()
    page.keyboard.press("Enter")
    assert "the simplest overflow" in visible(page, "tr.more")[0]
    page.keyboard.press("Escape")
    assert visible(page, "tr.more") == []
    page.keyboard.press("Space")
    assert "the simplest overflow" in visible(page, "tr.more")[0]


def ids(page):
    return [text.replace("\u200b", "") for text in visible(page, "tr.row .id")]


def test_filters_by_text_level_outcome_and_engine_work_together_and_reset_shows_all(opened):
    page = opened()
    page.fill("[name=text]", "33906 LIVE")
    assert ids(page) == ["capacity.no-overflow"]
    page.fill("[name=text]", "")
    page.select_option("[name=level]", "SHOULD")
    assert ids(page) == ["delay.budget"]
    assert page.locator("output").inner_text() == "1 of 7 invariants"
    assert visible(page, "tbody.family .name") == ["delay"]
    page.select_option("[name=level]", "")
    page.select_option("[name=outcome]", "unwitnessed")
    assert ids(page) == ["select.minimal"]
    assert ["never came up" in note for note in visible(page, ".note")] == [True]
    page.select_option("[name=engine]", "other")
    assert ids(page) == []
    page.select_option("[name=outcome]", "")
    assert len(ids(page)) == 7
    assert visible(page, "th[scope=colgroup]") == ["other"]
    assert visible(page, "tr.row >> nth=0 >> td") == ["✓ pass"]
    page.click("button[type=reset]")
    page.wait_for_function("document.querySelector('output').value === '7 of 7 invariants'")
    assert len(visible(page, "th[scope=colgroup]")) == 3


def test_a_filter_closes_what_was_expanded(opened):
    page = opened()
    page.locator("tr.row", has_text="free").locator("td.skip >> nth=0").click()
    assert len(visible(page, "tr.more")) == 1
    page.fill("[name=text]", "in-bounds")
    assert ids(page) == ["data.in-bounds"]
    assert visible(page, "tr.more") == []


def test_without_a_script_a_cell_leads_to_its_open_counterexample(opened):
    page = opened(java_script_enabled=False)
    assert not page.locator("#filter").is_visible()
    assert not any("rank  rows  needs" in note for note in visible(page, ".note"))
    page.locator(OVERFLOW).click()
    assert any("rank  rows  needs" in note for note in visible(page, ".note"))


def test_on_a_phone_only_the_table_scrolls_sideways_and_the_ids_stay(opened):
    page = opened(PHONE)
    assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    assert page.evaluate(
        "document.querySelector('.scroll').scrollWidth > document.querySelector('.scroll').clientWidth"
    )
    page.evaluate("document.querySelector('.scroll').scrollLeft = 200")
    box = page.locator("tr.row th").first.bounding_box()
    assert 0 <= box["x"] < 30
    assert box["width"] < PHONE["width"] / 3
    page.locator(OVERFLOW).click()
    heading, row = page.locator("thead tr").last.bounding_box(), page.locator("tr.row:has(+ tr.more)").bounding_box()
    assert max(0, heading["y"] + heading["height"] - 2) <= row["y"] < PHONE["height"] / 2
    inside = page.locator(".inplace").bounding_box()
    assert inside["x"] >= 0
    assert inside["x"] + inside["width"] <= PHONE["width"]


def test_paper_gets_every_counterexample_without_a_script_too(opened):
    page = opened(java_script_enabled=False)
    assert len(visible(page, ".note .case")) == 0
    page.emulate_media(media="print")
    assert len(visible(page, ".note .case")) == 6


def test_paper_gets_every_counterexample_and_no_form(opened):
    page = opened()
    page.locator(OVERFLOW).click()
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    assert not page.locator("#filter").is_visible()
    assert visible(page, "tr.more") == []
    assert len(visible(page, ".note .case")) == 6
    page.emulate_media(media="screen")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert not any("rank  rows  needs" in note for note in visible(page, ".note"))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_word_of_the_table_stands_out_from_what_is_behind_it(opened, scheme):
    page = opened(color_scheme=scheme)
    lightness = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (lightness == "rgb(255, 255, 255)") == (scheme == "light")
    for cell in page.locator("tr.row td").all():
        colours = cell.evaluate("cell => [getComputedStyle(cell).color, getComputedStyle(cell).backgroundColor]")
        assert contrast(*colours) >= 4.5, (cell.inner_text(), colours)


def contrast(one, other):
    """As WCAG 2 counts it: 1 to 21."""
    light, dark = sorted(map(luminance, (one, other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(colour):
    channels = [int(number) / 255 for number in colour.removeprefix("rgb(").removesuffix(")").split(",")]
    linear = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in channels]
    return sum(weight * one for weight, one in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
