"""report.html: one file that loads nothing, runs nothing it was not shipped with, and shows every name as text."""

from __future__ import annotations

import base64
import hashlib
import html
import re
import subprocess
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest
from sample_plan import HOSTILE

from planner.report.blocks import visible
from planner.schema.plan import Plan

VOID = frozenset({"meta", "br", "link", "img", "input", "hr"})


class Page(HTMLParser):
    """Checks that tags nest, and gathers what tests ask for."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(source)
        self.close()
        assert not self.open, f"left open: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-1:]}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("script", "style"):
            self.words.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.words))

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.tags if name == tag]


@pytest.fixture(scope="module")
def source(report_dir: Path) -> str:
    return (report_dir / "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(source: str) -> Page:
    return Page(source)


def test_it_parses_and_shows_the_decision(page: Page, plan: Plan) -> None:
    assert plan.headline in page.text.replace("\xa0", " ")


@pytest.mark.parametrize("which", ["report_dir", "hostile_dir"])
def test_nothing_is_loaded(which: str, request: pytest.FixtureRequest) -> None:
    page = Page((request.getfixturevalue(which) / "report.html").read_text(encoding="utf-8"))
    for tag, attrs in page.tags:
        assert tag not in ("link", "iframe", "object", "embed", "base", "form", "img", "image", "audio", "video", "source"), tag
        assert "src" not in attrs and "srcset" not in attrs
        assert not [name for name in attrs if name.startswith("on")], (tag, attrs)
        if tag != "a":
            assert "://" not in (attrs.get("href") or "") and "://" not in (attrs.get("xlink:href") or "")
    css = " ".join(re.findall(r"<style>(.*?)</style>", (request.getfixturevalue(which) / "report.html").read_text(encoding="utf-8"), re.S))
    assert "@import" not in css and "url(" not in css


@pytest.mark.parametrize("which", ["report_dir", "hostile_dir"])
def test_the_policy_lets_only_the_shipped_script_run(which: str, request: pytest.FixtureRequest) -> None:
    source = (request.getfixturevalue(which) / "report.html").read_text(encoding="utf-8")
    page = Page(source)
    policy = next(attrs["content"] for attrs in page.all("meta") if attrs.get("http-equiv") == "Content-Security-Policy")
    assert policy and "default-src 'none'" in policy and "unsafe-eval" not in policy and "script-src 'unsafe-inline'" not in policy
    scripts = re.findall(r"<script>(.*?)</script>", source, re.S)
    assert len(scripts) == 1 == len(page.all("script"))
    digest = base64.b64encode(hashlib.sha256(scripts[0].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy


def test_hostile_names_are_text(hostile_dir: Path) -> None:
    source = (hostile_dir / "report.html").read_text(encoding="utf-8")
    text = Page(source).text
    for name in HOSTILE:
        assert re.sub(r"\s+", " ", visible(name)) in text, name
    assert "<script>alert" not in source and "49" not in re.findall(r"<h1>(.*?)</h1>", source)[0]
    assert html.escape("<script>alert(1)</script>") in source


def test_structure_for_readers_of_all_kinds(page: Page) -> None:
    names = [tag for tag, _ in page.tags]
    assert all(names.count(tag) == 1 for tag in ("main", "nav", "h1", "header", "footer"))
    assert {"href": "#main", "class": "skip"} in page.all("a")
    assert next(attrs for attrs in page.all("html"))["lang"] == "en"
    assert all(attrs.get("scope") in ("col", "row") for attrs in page.all("th"))
    levels = [int(tag[1]) for tag in names if re.fullmatch(r"h[1-6]", tag)]
    assert all(b - a <= 2 for a, b in pairwise(levels))
    pictures = [attrs for attrs in page.all("div") if attrs.get("role") == "img"]
    assert len(pictures) == names.count("figure") == 8
    assert all(attrs.get("aria-label") for attrs in pictures)


@pytest.mark.parametrize("which", ["report_dir", "hostile_dir"])
def test_ids_are_unique_and_links_lead_somewhere(which: str, request: pytest.FixtureRequest) -> None:
    page = Page((request.getfixturevalue(which) / "report.html").read_text(encoding="utf-8"))
    ids = [attrs["id"] for _, attrs in page.tags if attrs.get("id")]
    assert len(ids) == len(set(ids))
    for attrs in page.all("a"):
        href = attrs.get("href") or ""
        assert href.startswith(("#", "https://", "http://")), href
        if href.startswith("#"):
            assert href[1:] in ids, href


def test_a_source_that_is_no_web_page_is_no_link(plan: Plan) -> None:
    from planner.report.view import build_view

    bad = plan.evidence[0].model_copy(update={"source": "javascript:alert(1)"})
    view = build_view(plan.model_copy(update={"evidence": (bad,)}))
    table = next(b for s in view.sections if s.name == "sources" for p in s.parts for b in p.blocks if b.block == "table")
    assert table.rows[0].cells[4].href is None


def test_it_is_small(source: str) -> None:
    assert len(source.encode()) < 3_000_000


def run_chromium(chromium: str, profile: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    options = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        f"--user-data-dir={profile}",
        "--enable-logging=stderr",
        "--v=0",
    ]
    return subprocess.run([chromium, *options, *arguments], capture_output=True, text=True, timeout=90, check=False)


@pytest.mark.browser
@pytest.mark.parametrize("which", ["report_dir", "hostile_dir"])
def test_a_browser_opens_it_without_a_complaint(which: str, chromium: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    path = request.getfixturevalue(which) / "report.html"
    done = run_chromium(chromium, tmp_path, "--dump-dom", path.as_uri())
    assert done.returncode == 0, done.stderr[-2000:]
    assert 'id="decision"' in done.stdout and "over 36 months" in done.stdout.replace("\xa0", " ").replace("&nbsp;", " ")
    assert "CONSOLE" not in done.stderr, [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    assert 'title="Sort by this column"' in done.stdout  # the script ran under the policy
    assert "<script>alert" not in done.stdout


@pytest.mark.browser
def test_a_browser_prints_it_to_paper(chromium: str, report_dir: Path, tmp_path: Path) -> None:
    target = tmp_path / "print.pdf"
    done = run_chromium(
        chromium, tmp_path / "profile", f"--print-to-pdf={target}", "--no-pdf-header-footer", (report_dir / "report.html").as_uri()
    )
    assert target.is_file() and target.stat().st_size > 20_000, done.stderr[-2000:]
