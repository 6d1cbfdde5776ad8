"""Every kind of block is shown in every form, and a terminal's tables line up."""

from __future__ import annotations

import matplotlib as mpl
import pytest

mpl.use("Agg")

from coresim.report.content import Block, Chart, Facts, Items, Paragraph, Report, Section, Table, Verbatim, statements
from coresim.report.html import report_html
from coresim.report.markdown import report_markdown
from coresim.report.pdf import report_pdf
from coresim.report.plain import answer_lines, section_text, table_lines
from coresim.report.words import WIDTH

LONG = " ".join(f"word{number}" for number in range(60))
BLOCKS: tuple[Block, ...] = (
    Paragraph(f"paragraph {LONG}"),
    Items(("first", f"second {LONG}")),
    Items((f"statement {LONG}",), marked=False),
    Facts((("name", "value"), ("longer name", LONG))),
    Verbatim("resources:\n  requests: {cpu: 2}"),
    Table(("what", "idle"), (("one", "1.0 %"), ("other", "10.0 %")), "A title", "a note", bars=(0.1, 0.5)),
)
CHART = Chart("a chart", "its caption", lambda figure: figure.subplots().plot([1, 2]))
REPORT = Report("title", "headline", (("fact", "told"),), (Section("A section", (CHART, *BLOCKS)),))


@pytest.mark.parametrize(
    "word", ["paragraph", "second", "statement", "longer name", "requests", "A title", "10.0 %", "a note"]
)
def test_every_block_is_in_every_form(word: str) -> None:
    assert word in section_text(REPORT.sections[0])
    assert word in report_html(REPORT)
    assert word in report_markdown(REPORT).replace("\\", "")


def test_only_html_and_pdf_have_charts() -> None:
    assert "its caption" in report_html(REPORT)
    assert "its caption" not in report_markdown(REPORT) and "its caption" not in section_text(REPORT.sections[0])
    charted, plain = (report_pdf(Report("t", "h", (("a", "b"),), (Section("s", blocks),))) for blocks in ((CHART,), ()))
    assert b"/Subtype /Image" in charted and b"/Subtype /Image" not in plain


def test_text_below_a_title_is_indented_and_no_wider_than_a_terminal() -> None:
    title, *lines = section_text(REPORT.sections[0]).splitlines()
    assert title == "A section" and all(line.startswith("  ") or not line for line in lines)
    assert max(map(len, lines)) <= WIDTH
    assert "    requests: {cpu: 2}" in lines


def test_statements_have_no_heading_and_no_signs_in_any_form() -> None:
    told = statements(["first", f"second {LONG}"])
    first, second, *more = section_text(told).splitlines()
    assert first == "first" and second.startswith("second word0") and more
    assert all(line.startswith("  word") for line in more)
    assert told.words == f"first second {LONG}"
    report = Report("title", "headline", (("fact", "told"),), (told,))
    assert "<h2>" not in report_html(report) and '<ul class="unmarked">\n<li>first</li>' in report_html(report)
    assert "## " not in report_markdown(report) and "\nfirst  \nsecond word0" in report_markdown(report)
    assert report_pdf(report).startswith(b"%PDF")


def test_bars_are_for_terminals_alone() -> None:
    """What has a width of its own, such as a page, has a chart of the same."""
    table = Table(("what", "idle"), (("one", "1.0 %"), ("other", "99.0 %")), bars=(0.01, 0.99))
    assert "#" in "".join(table_lines(table)) and "#" not in "".join(table_lines(table, 40))


def test_numbers_stand_flush_right_with_their_bars_behind() -> None:
    table = BLOCKS[-1]
    assert isinstance(table, Table)
    assert table_lines(table) == ["what     idle", "one     1.0 %  ####", "other  10.0 %  ####################"]
    wide = Table(("a", "words"), (("1", LONG),))
    assert max(map(len, table_lines(wide, 50))) <= 50 and len(table_lines(wide)) == 2


def test_a_section_with_nothing_to_read_is_left_out() -> None:
    empty = (Section("Warnings", (Items(()),)), Section("Charts", (CHART,)), Section("", ()), statements([]))
    assert answer_lines("headline", *empty) == "headline"
