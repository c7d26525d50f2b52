"""report.pdf: text that can be read and found, fonts inside, same bytes every time, nothing evaluated."""

from __future__ import annotations

import re
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pikepdf
import pytest
from conftest import find_tool
from hypothesis import given
from hypothesis import strategies as st

from planner.report.blocks import Chart
from planner.report.charts import draw
from planner.report.pdf import _COVERED, LONGEST_RUN, STANDARDS, breakable, drawable, render_pdf
from planner.report.view import build_view
from planner.schema.plan import Plan


def text_of(path: Path) -> str:
    tool = find_tool("pdftotext")
    done = subprocess.run([tool, "-layout", path.as_posix(), "-"], capture_output=True, text=True, check=True, timeout=60)
    return done.stdout


def test_it_is_a_tagged_archive_document_with_bookmarks(report_dir: Path, plan: Plan) -> None:
    with pikepdf.open(report_dir / "report.pdf") as pdf:
        assert len(pdf.pages) >= 5
        assert all([round(float(x)) for x in page.MediaBox] == [0, 0, 595, 842] for page in pdf.pages)
        assert pdf.Root.MarkInfo.Marked and "/StructTreeRoot" in pdf.Root and pdf.Root.Lang == "en"
        with pdf.open_metadata() as meta:
            assert meta["pdfaid:part"] == "2" and meta["pdfaid:conformance"] == "A"
            assert plan.title in str(meta["dc:title"])
        with pdf.open_outline() as outline:
            titles = [item.title for item in outline.root[0].children] + [item.title for item in outline.root]
    assert {"What it costs", "Memory", "Assumptions and sources"} <= set(titles)
    assert STANDARDS == ("a-2a",)


@pytest.mark.pictures
def test_text_can_be_extracted(report_dir: Path, plan: Plan) -> None:
    text = re.sub(r"\s+", " ", text_of(report_dir / "report.pdf"))
    for expected in (
        plan.headline[:40],
        "$598,326",
        "Before you sign",
        "Signatures",
        "85.9",
        "page 1 of",
        "prices of 30 Nov 2026",
        plan.command,
    ):
        assert expected in text, expected


@pytest.mark.pictures
def test_fonts_are_embedded(report_dir: Path) -> None:
    tool = find_tool("pdffonts")
    done = subprocess.run([tool, (report_dir / "report.pdf").as_posix()], capture_output=True, text=True, check=True, timeout=60)
    rows = done.stdout.splitlines()[2:]
    assert rows
    for row in rows:
        embedded, subset, _unicode = row.split()[-5:-2]
        assert embedded == "yes" and subset == "yes", row


@pytest.mark.pictures
def test_every_page_draws_and_none_is_empty(report_dir: Path, tmp_path: Path) -> None:
    tool = find_tool("pdftoppm")
    subprocess.run(
        [tool, "-gray", "-r", "20", (report_dir / "report.pdf").as_posix(), (tmp_path / "page").as_posix()], check=True, timeout=60
    )
    pictures = sorted(tmp_path.glob("page*.pgm"))
    assert len(pictures) >= 5
    for picture in pictures:
        raw = picture.read_bytes()
        pixels = raw[raw.index(b"255\n") + 4 :]
        assert sum(value < 200 for value in pixels) > 150, picture.name


@pytest.mark.pictures
def test_hostile_names_are_text(hostile_dir: Path) -> None:
    text = re.sub(r"\s+", " ", text_of(hostile_dir / "report.pdf").replace("\u200b", ""))
    for expected in (
        "<script>alert(1)</script>",
        "{{7*7}}",
        '#eval("1+1")',
        "$x$ *bold* _it_",
        "=HYPERLINK(",
        "⟨U+202E⟩",
        "[rocket]",
        "W" * LONGEST_RUN,
    ):
        assert expected in text, expected


def test_same_plan_same_bytes(plan: Plan, report_dir: Path) -> None:
    view = build_view(plan)
    svgs = {chart.name: draw(chart) for chart in view.charts()}
    at = datetime(plan.as_of.year, plan.as_of.month, plan.as_of.day, tzinfo=UTC)
    assert render_pdf(view, svgs, at) == (report_dir / "report.pdf").read_bytes()


def test_the_wheels_fonts_draw_every_character_said_to_be_covered() -> None:
    """PDF/A refuses a document with a character that no font holds: one document with all of them compiles."""
    import typst

    characters = "".join(chr(code) for low, high in _COVERED for code in range(low, high + 1))
    template = b'#set text(font: ("Libertinus Serif", "DejaVu Sans Mono"))\n#set document(title: "t")\n#sys.inputs.text'
    fonts = typst.Fonts(include_system_fonts=False)
    pdf, warnings = typst.compile_with_warnings(
        template, font_paths=fonts, ignore_system_fonts=True, format="pdf", sys_inputs={"text": characters}, pdf_standards=["a-2a"]
    )
    assert pdf.startswith(b"%PDF") and not warnings


@given(st.text(max_size=200))
def test_drawable_text_has_only_drawable_characters(text: str) -> None:
    shown = drawable(text)
    assert all(any(low <= ord(c) <= high for low, high in _COVERED) or c == "\u200b" for c in shown)
    assert drawable(shown) == shown


@given(st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\u200b"), max_size=300))
def test_breakable_text_loses_nothing_and_can_be_broken(text: str) -> None:
    shown = breakable(text)
    assert shown.replace("\u200b", "") == text
    assert all(len(run) <= LONGEST_RUN for run in re.split(r"[\s\u200b]", shown))


def test_charts_are_drawn_alike_each_time_and_escape_their_words(hostile: Plan) -> None:
    for chart in build_view(hostile).charts():
        assert isinstance(chart, Chart)
        first = draw(chart)
        assert first == draw(chart)
        assert "<script" not in first and first.count("<svg") == 1
        assert not re.search(r'(href|src)="(?!#)', first)
