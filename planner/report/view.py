"""Plan → what a report shows, in order and as finished words. HTML, PDF, Markdown and terminal all place this one view."""

from __future__ import annotations

from planner import formatting as f
from planner.report.blocks import ReportView, Section, all_visible
from planner.report.load import Load
from planner.report.load_view import load_section
from planner.report.money_view import alternatives_section, cost_section
from planner.report.names import Names
from planner.report.page_one import page_one
from planner.report.physics_view import memory_section, speed_section
from planner.report.plan_file import plan_digest
from planner.report.sources_view import exclusions_section, limits_section, reproduce_section, sources_section
from planner.schema.plan import Plan

SIGNATURES = ("Prepared by", "Technical approval", "Budget approval")
DIGEST_SHOWN = 12


def build_view(plan: Plan) -> ReportView:
    """Return everything a report of `plan` shows. Pure: the same plan (its `run` times aside) gives the same view."""
    names = Names(plan)
    load = Load(plan, names)
    digest = plan_digest(plan)
    sections: tuple[Section | None, ...] = (
        cost_section(plan, names),
        load_section(plan, names, load),
        memory_section(plan),
        speed_section(plan, names),
        alternatives_section(plan, names),
        exclusions_section(plan, names),
        sources_section(plan, names),
        limits_section(plan, names),
        reproduce_section(plan, digest),
    )
    last = f.month(plan.start, plan.horizon_months - 1)
    view = ReportView(
        title=plan.title,
        subtitle=f"{f.term(plan.horizon_months)} from {f.month(plan.start, 0)} to {last}; prices of {f.day(plan.prices_day)}; "
        f"decided as of {f.day(plan.as_of)}; US dollars, real, before tax",
        headline=f.sentence(names.prose(plan.headline)),
        digest=digest[:DIGEST_SHOWN],
        prices_day=f.day(plan.prices_day),
        as_of=f.day(plan.as_of),
        planner_version=plan.run.planner_version,
        warnings=tuple(f.sentence(names.prose(warning)) for warning in plan.warnings),
        page_one=page_one(plan, names, load),
        sections=tuple(section for section in sections if section is not None),
        signatures=SIGNATURES,
    )
    return all_visible(view)
