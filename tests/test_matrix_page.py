"""The page and the Markdown of a matrix: well-formed, self-contained, a word in every cell, no markup from a target."""

import re
from collections import Counter

import pytest
from made_matrix import COLUMNS, HOSTILE, NASTY, made_document
from markdown_it import MarkdownIt
from page import Page

from cpbcg_ref.report.markdown import as_markdown, fenced
from cpbcg_ref.report.matrix import view
from cpbcg_ref.report.matrixpage import TEMPLATES, as_html

WORDS = ("pass", "fail", "error", "unwitnessed", "skip")


@pytest.fixture(scope="module")
def page():
    return Page(as_html(made_document(*COLUMNS, NASTY)))


def cells(page):
    return [cell for cell in page.all("td") if "data-outcome" in cell.attributes]


def test_every_element_of_the_page_is_closed(page):
    assert page.wrong == []
    assert Page("<p><b></p>").wrong == ["p", "p"]


def test_every_cell_has_a_sign_and_a_word(page):
    for cell in cells(page):
        sign, word = cell.text.split()
        assert word == cell.attributes["data-outcome"]
        assert (sign, word) in zip("✓✗△⚠?-", ("pass", "fail", "fail", "error", "unwitnessed", "skip"), strict=True)
    assert {cell.attributes["data-outcome"] for cell in cells(page)} == {*WORDS}
    should = [cell for cell in cells(page) if cell.attributes["class"] == "fail SHOULD"]
    assert {cell.text.split()[0] for cell in should} == {"△"}


def test_a_row_has_a_cell_for_every_column_and_headers_say_what_they_head(page):
    rows = Counter(cell.inside[-1] for cell in cells(page))
    assert {*rows.values()} == {5}
    assert all(heading.attributes["scope"] in ("col", "row", "colgroup", "rowgroup") for heading in page.all("th"))
    assert [heading.text for heading in page.all("th", scope="colgroup")][:2] == ["sglang", "other"]
    engines = [cell.attributes["data-engine"] for cell in cells(page)[:5]]
    assert engines == ["sglang", "sglang", "sglang", "other", HOSTILE]


def test_what_is_not_plainly_passed_leads_to_its_reason_or_case_without_a_script(page):
    places = [element.attributes["id"] for element in page.elements if "id" in element.attributes]
    assert len(places) == len({*places})
    for cell in cells(page):
        links = [one.attributes["href"] for one in page.all("a") if cell in one.inside]
        assert len(links) == (cell.attributes["data-outcome"] != "pass"), cell.text
        for link in links:
            (target,) = [one for one in page.elements if one.attributes.get("id") == link.removeprefix("#")]
            assert target.inside[-1].tag == "details"
            assert cell.attributes["title"] in target.inside[-1].text


def test_a_violation_has_its_picture_its_case_and_its_command(page):
    told = next(one.text for one in page.all("details") if "the simplest overflow" in one.text)
    assert "rank  rows  needs\n   0     9     16" in told
    assert "@example(case=ReplayCase(server=Server(cp_size=4" in told
    assert "cpbcg check sglang==0.5.17 --select capacity.no-overflow --profile ci --seed 0" in told
    assert "Public: sglang#33906" in told


def test_the_page_says_when_and_with_what_it_was_made(page):
    text = next(element.text for element in page.all("dl"))
    assert "2026-11-30 20:01:02 UTC" in text
    assert re.search(r"seed\s*0\s", text)
    for name in ("profile", "cpbcg", "python", "hypothesis"):
        assert re.search(rf"{name}\s*\S*\d|{name}\s*ci", text)


def test_nothing_is_loaded_and_no_script_but_its_own_is_allowed(page):
    for element in page.elements:
        loads = {*element.attributes} & {"src", "srcset", "data", "action", "background", "poster", "style"}
        assert not loads, (element.tag, loads)
        assert element.attributes.get("href", "#").startswith("#")
        assert not [name for name in element.attributes if name.startswith("on")]
    (style,), (script,) = page.all("style"), page.all("script")
    assert not re.search(r"url\(|@import|https?:|//", style.text + script.text)
    assert script.text == (TEMPLATES / "matrix.js.j2").read_text()
    (policy,) = [one.attributes["content"] for one in page.all("meta") if "http-equiv" in one.attributes]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy


def test_no_name_or_message_becomes_an_element(page):
    harmless = Page(as_html(made_document(*COLUMNS)))
    assert {element.tag for element in page.elements} == {element.tag for element in harmless.elements}
    assert any(HOSTILE in element.text for element in page.all("details"))
    assert "49" not in {cell.text for cell in page.all("th")}


def tables(tokens):
    return [token for token in tokens if token.type in ("td_open", "th_open")]


@pytest.fixture(scope="module")
def markdown():
    return as_markdown(made_document(*COLUMNS, NASTY))


@pytest.fixture(scope="module")
def parsed(markdown):
    return MarkdownIt("commonmark").enable("table").parse(markdown)


def inside(parsed):
    return [child for token in parsed if token.type == "inline" for child in token.children]


def test_the_markdown_table_has_every_cell(parsed):
    shown = view(made_document(*COLUMNS, NASTY))
    assert len(tables(parsed)) == (1 + len(shown.columns)) * (1 + len(shown.rows))
    rendered = MarkdownIt("commonmark").enable("table").render(as_markdown(made_document()))
    assert '<td><a href="#n' in rendered
    assert "<strong>FAIL</strong>" in rendered
    assert rendered.count("<td>pass</td>") == 10


def test_every_link_of_the_markdown_leads_to_a_place_in_it(markdown, parsed):
    places = re.findall(r'<a id="(n\d+)"></a>', markdown)
    links = [child.attrs["href"] for child in inside(parsed) if child.type == "link_open"]
    assert {link.removeprefix("#") for link in links} == {*places}
    assert len(places) == len({*places})


def test_no_name_or_message_becomes_markup(markdown, parsed):
    raw = [child.content for child in inside(parsed) if child.type == "html_inline"]
    raw += [token.content for token in parsed if token.type == "html_block"]
    assert all(re.fullmatch(r'(<a id="n\d+">)?(</a>)?\s*', one) for one in raw), raw
    assert not [child for child in inside(parsed) if child.type in ("image", "em")]
    blocks = [token.content for token in parsed if token.type == "fence"]
    assert any(block.count(HOSTILE) == 2 for block in blocks)
    assert sum(token.type == "heading_open" for token in parsed) == 2 + markdown.count("\n### ")


def test_a_fence_is_longer_than_any_in_its_text():
    assert fenced("a") == "```text\na\n```"
    assert fenced("`````\na", "bash") == "``````bash\n`````\na\n``````"
