"""Where everything comes from: what was excluded, assumed, measured and read; limits, risks, words, and how to repeat the plan."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from planner import formatting as f
from planner.report.blocks import Block, Cell, Code, Column, Facts, Notes, Part, Row, Section, Table, Text
from planner.report.blocks import Fact as F
from planner.report.names import EXCLUSIONS, KINDS, Names
from planner.schema.plan import Evidence, Plan

_ORDER = {kind: i for i, kind in enumerate(KINDS)}
GLOSSARY = (
    ("Node", "A machine that is bought or rented."),
    ("Replica", "One copy of a model on some GPUs."),
    ("Pool", "Nodes alike under one deal."),
    ("Timeslice", "A stretch of alike hours of the week; the plan decides for each what runs."),
    ("Net present cost", "The sum of all payments, later ones discounted: what the plan minimises."),
    ("Prefill, decode", "Reading the prompt; writing the answer token by token."),
    ("KV cache", "What a model keeps of every token of a session; it grows with sessions and context."),
    ("First token (TTFT)", "From sending a request to its first token, queueing included."),
    ("Per token (TPOT)", "Time between tokens after the first."),
    ("p99", "What 99 of 100 requests stay below."),
    ("Roofline", "The most a chip can do: limited by bandwidth left of its ridge, by compute right of it."),
    ("Gap", "How much cheaper a plan could at most be, as proven by the solver."),
    ("Break-even", "The use from which owning is cheaper than its rival."),
    ("Residual value", "What a node is expected to sell for at the end of the term."),
    ("GB, GiB", "10⁹ bytes; 2³⁰ bytes."),
)
_ROLES = {
    "workload": "workload file",
    "snapshot": "prices",
    "hardware": "hardware",
    "model": "model",
    "efficiency": "measured efficiency",
    "engine": "engine",
    "regions": "regions",
    "profiles": "load profiles",
}


def exclusions_section(plan: Plan, names: Names) -> Section | None:
    """Return why options were left out, by reason and workload; nothing where none was."""
    if not plan.exclusions:
        return None
    groups: dict[tuple[str, str, str], list[str]] = {}
    for x in plan.exclusions:
        groups.setdefault((x.kind, x.workload, x.reason), []).append(names.prose(x.option))
    order = {kind: i for i, kind in enumerate(EXCLUSIONS)}
    rows = []
    for (kind, workload, reason), options in sorted(groups.items(), key=lambda g: (order[g[0][0]], g[0][1], g[0][2])):
        shown = ", ".join(options[:6]) + (f" and {len(options) - 6} more" if len(options) > 6 else "")
        rows.append(
            Row(
                (Cell(EXCLUSIONS[kind], order[kind]), Cell(f.name_of(workload)), Cell(shown, sub=""), Cell(f.sentence(names.prose(reason))))
            )
        )
    kinds = {kind: sum(x.kind == kind for x in plan.exclusions) for kind in EXCLUSIONS}
    counted = "; ".join(f"{title.split(':')[0].lower()}: {kinds[kind]}" for kind, title in EXCLUSIONS.items() if kinds[kind])
    columns = (Column("Rule", weight=1.4), Column("Workload", weight=1.1), Column("Options left out", weight=2), Column("Reason", weight=2))
    table = Table("exclusions", "What was not considered, and why", columns, tuple(rows), is_sortable=True, is_stacked=True)
    lead = f"{f.plural(len(plan.exclusions), 'option')} left out before the decision ({counted})."
    return Section("exclusions", "What was left out", lead, (Part("By rule", (table,)),))


def sources_section(plan: Plan, names: Names) -> Section:
    """Return the assumptions first, then every figure with its source, date and kind."""
    assumed = Notes(tuple(f.sentence(names.prose(a)) for a in plan.assumptions) or ("None.",))
    figures = sorted(enumerate(plan.evidence), key=lambda e: (_ORDER.get(e[1].kind, 99), e[0]))
    rows = tuple(_evidence_row(i, e, names) for i, e in figures)
    columns = (
        Column("Figure", weight=2.2),
        Column("Value", "number"),
        Column("Kind", weight=0.8),
        Column("How it was formed", weight=2.2),
        Column("Source", weight=1.8),
        Column("Date", weight=0.9),
    )
    table = Table(
        "evidence",
        "Every figure, its source and its date",
        columns,
        rows,
        is_sortable=True,
        is_stacked=True,
        note="Assumed figures first. A path that starts with package: is shipped with planner.",
    )
    return Section(
        "sources",
        "Assumptions and sources",
        "What was chosen stands first; then what was worked out, measured and read.",
        (Part("Assumptions", (assumed,)), Part("Figures", (table,))),
    )


def _evidence_row(index: int, e: Evidence, names: Names) -> Row:
    source = e.source or f.NOTHING
    href = source if source.startswith(("https://", "http://")) else None
    formed = "; ".join(part for part in (e.formula, e.note) if part)
    value = e.value if isinstance(e.value, (int, float)) else None
    cells = (
        Cell(names.prose(e.name)),
        Cell(f.quantity(e.value, e.unit), value),
        Cell(KINDS.get(e.kind, e.kind), _ORDER.get(e.kind)),
        Cell(formed or f.NOTHING),
        Cell(source, href=href),
        Cell(f.day(e.as_of), float(e.as_of.toordinal()) if e.as_of else None),
    )
    return Row(cells, anchor=f"figure_{index + 1}")


def limits_section(plan: Plan, names: Names) -> Section:
    """Return what the plan does not prove, its risks, and what the user wrote beside it."""
    parts = [
        Part("Not proven by this plan", (Notes(tuple(f.sentence(names.prose(x)) for x in plan.limitations) or ("Nothing was noted.",)),))
    ]
    if plan.risks:
        rows = tuple(
            Row((Cell(names.prose(r.name)), Cell(f.sentence(names.prose(r.text))), Cell(f.sentence(names.prose(r.mitigation)))))
            for r in plan.risks
        )
        columns = (Column("When"), Column("What happens", weight=1.5), Column("What to do", weight=1.5))
        parts.append(Part("Risks", (Table("risks", "When not to use this plan, and what to do", columns, rows, is_stacked=True),)))
    if plan.extensions:
        parts.append(
            Part(
                "Remarks of the author",
                (Facts(tuple(F(f.name_of(key), _remark(value)) for key, value in sorted(plan.extensions.items()))),),
            )
        )
    return Section("limits", "Limitations and risks", "What the figures above cannot tell you.", tuple(parts))


def _remark(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return "; ".join(_remark(item) for item in value)
    if isinstance(value, dict):
        return "; ".join(f"{f.name_of(str(key))}: {_remark(item)}" for key, item in value.items())
    return f.number(value, 6) if isinstance(value, float) else str(value)


def reproduce_section(plan: Plan, digest: str) -> Section:
    """Return the command, the digests of the inputs, and what the solver said."""
    return Section("reproduce", "Repeat this plan", "The same inputs give the same plan, byte for byte.", tuple(_reproduce(plan, digest)))


def _reproduce(plan: Plan, digest: str) -> Iterator[Part]:
    yield Part("Command", (Code(plan.command), Text(f"Plan digest (SHA-256, run times left out): {digest}")))
    rows = tuple(Row((Cell(_ROLES[i.role]), Cell(i.path), Cell(f.day(i.as_of)), Cell(i.sha256))) for i in plan.inputs)
    columns = (Column("Role", weight=0.8), Column("File", weight=1.7), Column("As of", weight=0.8), Column("SHA-256", weight=2.4))
    yield Part("Inputs", (Table("inputs", "Files this plan rests on", columns, rows, is_stacked=True),))
    s = plan.solver
    facts: tuple[F, ...] = (
        F("Solver", f"{s.name}: {s.status}, gap {f.percent(s.gap_frac)} (asked for {f.percent(s.gap_asked_frac)})"),
        F("Cost and proven bound", f"{f.money(plan.npv_cost_usd)} and {f.money(s.npv_bound_usd)}"),
        F("Size", f"{f.count(s.row_count)} rows, {f.count(s.column_count)} columns"),
        F("Seed", str(plan.seed)),
        F("Version", f"planner {plan.run.planner_version}"),
    )
    blocks: list[Block] = [Facts(facts)]
    yield Part("Solver", tuple(blocks))
    words = tuple(F(term, meaning) for term, meaning in GLOSSARY)
    yield Part("Words", (Facts(words),))
