"""The view: what a report shows, in words."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import Any

import pytest
from sample_plan import sample_plan

from planner import formatting as f
from planner.report.blocks import Chart, Facts, ReportView, Table, visible
from planner.report.load import Load
from planner.report.names import Names
from planner.report.view import build_view
from planner.schema.plan import Plan

RAW_ID = re.compile(r"(?<![\w/.`-])[a-z0-9]+(?:_[a-z0-9]+)+(?![\w/.`-])")


def strings(value: Any) -> Iterator[str]:
    """Yield every text that a reader sees."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from strings(item)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            if field.name not in ("spec", "name", "anchor", "href", "block", "kind", "tone"):
                yield from strings(getattr(value, field.name))


def tables(view: ReportView) -> dict[str, Table]:
    parts = [*view.page_one, *(part for section in view.sections for part in section.parts)]
    return {block.name: block for part in parts for block in part.blocks if isinstance(block, Table)}


def column(table: Table, index: int) -> list[str]:
    return [row.cells[index].text for row in table.rows]


@pytest.fixture(scope="module")
def view(plan: Plan) -> ReportView:
    return build_view(plan)


def test_no_raw_identifier_is_shown(view: ReportView) -> None:
    for text in strings(view):
        outside = re.sub(r"`[^`]*`", "", text)
        if "package:" not in outside and "workloads/" not in outside:
            assert not RAW_ID.search(outside), text


def test_nothing_python_like_is_shown(view: ReportView) -> None:
    for text in strings(view):
        assert not re.search(r"\bNone\b|\bnan\b|\binf\b|datetime|\bTrue\b|\bFalse\b|\d\.\d{7}", text.replace("None.", "")), text


def test_every_row_has_a_cell_for_each_column(view: ReportView) -> None:
    for table in tables(view).values():
        assert table.rows, table.name
        assert {len(row.cells) for row in table.rows} == {len(table.columns)}, table.name


def test_names_of_tables_and_charts_are_unique(view: ReportView) -> None:
    parts = [*view.page_one, *(part for section in view.sections for part in section.parts)]
    names = [block.name for part in parts for block in part.blocks if isinstance(block, (Table, Chart))]
    assert len(names) == len(set(names))


def test_page_one_states_decision_cost_and_certainty(view: ReportView, plan: Plan) -> None:
    assert [part.title for part in view.page_one] == [
        "What to do",
        "Until the purchase serves",
        "What it costs",
        "How sure this is",
        "What it beats",
        "What would change it",
    ]
    page = " ".join(strings(view.page_one))
    for usd in (plan.npv_cost_usd, plan.tco_usd, plan.first_year_usd, plan.tco_usd - plan.staff_usd, *(d.usd for d in plan.decisions)):
        assert f.money(usd) in page
    assert "Proven" in page and "274 days" in page and "2 of 3 rest on measured runs" in page
    assert len(view.warnings) == 2


def test_an_unproven_plan_never_says_proven(plan: Plan) -> None:
    solver = plan.solver.model_copy(update={"status": "feasible", "gap_frac": 0.012, "reproducible": False})
    page = " ".join(strings(build_view(plan.model_copy(update={"solver": solver})).page_one))
    assert "Not proven optimal" in page and "1.2" in page and "The clock ended this run" in page
    assert "Proven:" not in page


def test_the_bridge_names_what_serves_before_delivery(view: ReportView) -> None:
    part = next(part for part in view.page_one if part.title == "Until the purchase serves")
    text = " ".join(strings(part))
    assert "serve from Mar 2027, 3 months later" in text
    assert "2x H100 SXM by Northcloud" in text and "qwen3-32b by Alibaba" in text and "at office rack, " not in text


def test_cost_lines_by_quarter_add_up_to_the_term(view: ReportView, plan: Plan) -> None:
    quarters = tables(view)["quarters"]
    body = [row for row in quarters.rows if not row.is_total]
    last = len(quarters.columns) - 1
    assert sum(row.cells[last].sort or 0.0 for row in body) == pytest.approx(plan.tco_usd, rel=1e-12)
    assert len(body) == 13  # 36 months and the end of the term
    for row in body:
        assert sum(cell.sort or 0.0 for cell in row.cells[1:last]) == pytest.approx(row.cells[last].sort, abs=1e-6)


def test_the_ledger_adds_up_and_stars_usage(view: ReportView, plan: Plan) -> None:
    ledger = tables(view)["ledger"]
    body = [row for row in ledger.rows if not row.is_total]
    assert sum(row.cells[-1].sort or 0.0 for row in body) == pytest.approx(plan.tco_usd, abs=1.0)
    starred = [row.cells[0].text for row in body if row.cells[0].text.endswith("*")]
    assert len(starred) == 3  # rent, call, energy
    assert "Not itemised above" not in column(ledger, 0)


def test_a_node_that_is_kept_is_not_counted_twice(plan: Plan) -> None:
    kept = plan.decisions[0].model_copy(update={"action": "keep", "usd": 12_345.0, "in_service_month": None, "pool": "existing.l40s_x4"})
    ledger = tables(build_view(plan.model_copy(update={"decisions": (*plan.decisions, kept)})))["ledger"]
    assert "Not itemised above" not in column(ledger, 0) and "in the lines below" in column(ledger, 4)


def test_a_decision_that_does_not_add_up_is_shown_not_hidden(plan: Plan) -> None:
    first = plan.decisions[0].model_copy(update={"usd": plan.decisions[0].usd - 1000.0})
    ledger = tables(build_view(plan.model_copy(update={"decisions": (first, *plan.decisions[1:])})))["ledger"]
    row = next(row for row in ledger.rows if row.cells[0].text == "Not itemised above")
    assert row.cells[-1].text == "$1,000"


def test_the_memory_line_adds_up_on_paper(view: ReportView) -> None:
    """32 × 8,192 × 327,680 = 85,899,345,920 bytes: 85.9 GB, 80.0 GiB."""
    table = tables(view)["memory_1"]
    for unit in (1, 2):
        values = [float(text) for text in column(table, unit)]
        assert sum(values[:4]) == pytest.approx(values[4], abs=1e-9)
    assert table.rows[1].cells[1].text == "85.9" and table.rows[1].cells[2].text == "80.0"
    assert table.rows[1].cells[3].text == "32 sequences × 8,192 tokens × 327,680 bytes, in FP16"


def test_assumptions_come_first_among_the_figures(view: ReportView) -> None:
    kinds = column(tables(view)["evidence"], 2)
    assert kinds[0] == "assumed" and kinds == sorted(
        kinds, key=["assumed", "derived", "measured", "list price", "published", "your input"].index
    )


def test_exclusions_are_grouped_by_reason(view: ReportView) -> None:
    table = tables(view)["exclusions"]
    assert len(table.rows) == 5  # six options, two of them for the same reason
    assert "gpt-4.1-mini by OpenAI, mistral-small-3.2 by Mistral" in column(table, 2)


def test_load_meets_the_problem_by_hand(plan: Plan) -> None:
    """Month 0, Mon-Fri 09-13: chat peaks at 2.9 req/s on 2-GPU replicas of 6.5 req/s: 2.9 / 6.5 × 2 = 0.892 GPUs filled of 4 held."""
    load = Load(plan, Names(plan))
    assert load.gpus_needed(0, 0) == pytest.approx(2.9 / 6.5 * 2)
    assert load.gpus_held(0, 0) == 4.0
    assert sum(load.requests_by_supply(0, 0).values()) == pytest.approx(2.9 + 3.6 + 0.25)


def test_a_plan_without_its_problem_still_has_a_report(plan: Plan) -> None:
    view = build_view(plan.model_copy(update={"problem": {}}))
    names = {chart.name for chart in view.charts()}
    assert "requests_over_week" in names and "gpus_over_week" not in names


def test_a_plan_that_only_calls_has_no_memory_section(plan: Plan) -> None:
    api = tuple(w.model_copy(update={"supplies": tuple(s for s in w.supplies if s.kind == "api")}) for w in plan.workloads)
    bare = plan.model_copy(
        update={
            "workloads": api,
            "decisions": plan.decisions[2:],
            "usage": (),
            "break_even": (),
            "alternatives": (),
            "exclusions": (),
            "risks": (),
            "warnings": (),
            "evidence": (),
            "assumptions": (),
            "dispatch": (),
            "problem": {},
        }
    )
    view = build_view(bare)
    assert [s.name for s in view.sections] == ["cost", "load", "speed", "alternatives", "sources", "limits", "reproduce"]


def test_run_times_do_not_show(plan: Plan) -> None:
    run = plan.run.model_copy(update={"solve_seconds": 99.0, "total_seconds": 123.0})
    assert build_view(plan.model_copy(update={"run": run})) == build_view(plan)


def test_hidden_characters_are_made_visible(hostile: Plan) -> None:
    assert visible("a\u202eb\x00c") == "a⟨U+202E⟩b⟨U+0000⟩c"
    for text in strings(build_view(hostile)):
        assert not re.search("[\u202a-\u202e\u2066-\u2069\x00-\x08]", text)


def test_each_chart_has_words(view: ReportView) -> None:
    for chart in view.charts():
        assert len(chart.alt) > 40 and re.search(r"\d", chart.alt), chart.name


def test_every_fact_that_links_leads_somewhere(view: ReportView) -> None:
    sections = {section.name for section in view.sections} | {"assumptions"}
    facts = [fact for part in view.page_one for block in part.blocks if isinstance(block, Facts) for fact in block.items]
    assert facts
    for fact in facts:
        assert fact.href is None or fact.href.removeprefix("#") in sections, fact


def test_the_sample_adds_up() -> None:
    plan = sample_plan()
    assert sum(len(t.hours_of_week) for t in plan.timeslices) == 168
    assert plan.first_year_usd < plan.tco_usd


def test_a_plan_of_one_month_and_empty_figures_still_has_a_report(plan: Plan) -> None:
    """No growth, nothing used, nothing served: zeros are shown, none is divided by."""
    lines = tuple(x.model_copy(update={"usd_by_month": (x.usd_by_month[0], 0.0), "total_usd": x.usd_by_month[0]}) for x in plan.cost_lines)
    supply = plan.workloads[0].supplies[0]
    assert supply.band and supply.memory
    empty = supply.model_copy(
        update={
            "band": supply.band.model_copy(update={"low": 0.0, "typical": 0.0, "high": 0.0}),
            "roofline": tuple(p.model_copy(update={"intensity_flop_per_byte": 0.0, "achieved_tflop_per_s": 0.0}) for p in supply.roofline),
            "memory": supply.memory.model_copy(update={"usable_bytes": 0.0, "sequences_count": 0}),
        }
    )
    workload = plan.workloads[0].model_copy(update={"supplies": (empty,), "peak_req_per_s_first": 0.0})
    short = plan.model_copy(
        update={
            "horizon_months": 1,
            "cost_lines": lines,
            "npv_cost_usd": 0.0,
            "tco_usd": 0.0,
            "workloads": (workload,),
            "dispatch": tuple(row for row in plan.dispatch if row.month == 0),
        }
    )
    view = build_view(short)
    from planner.report.charts import draw_all

    assert len(draw_all(view.charts())) == len(view.charts())
    assert not any("nan" in text for text in strings(view))
