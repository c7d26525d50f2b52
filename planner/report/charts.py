"""Charts as Vega-Lite (made with Altair) and as SVG (drawn by vl-convert, no browser): the same drawing for HTML and PDF."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import altair

from planner.report.blocks import Chart

alt: Any = altair  # its types are looser than its schema
WIDTH = 640
FONT = "Libertinus Serif"
PALETTE = ("#17456b", "#5b9bd0", "#c8753a", "#8aa05a", "#7a5c9e", "#d8a93f", "#9aa3ab", "#4d4d4d", "#b6546b", "#2f8f83")
"""Mid tones of unlike lightness: told apart on white, on black and in grey print."""
INK = "#57606a"
LIMIT = "#b3261e"


def _finished(chart: Any, height: int | None = None) -> dict[str, Any]:
    """Return the specification with the house's looks; `width` and `height` are in pixels of the SVG."""
    spec: dict[str, Any] = chart.to_dict()
    spec.pop("$schema", None)
    spec["config"] = {
        "background": None,
        "font": FONT,
        "view": {"stroke": None, "continuousWidth": WIDTH, "discreteWidth": WIDTH},
        "axis": {
            "labelFontSize": 12,
            "titleFontSize": 12,
            "titleFontWeight": "normal",
            "labelColor": INK,
            "titleColor": INK,
            "gridColor": "#d9dee3",
            "domainColor": "#8c959f",
            "tickColor": "#8c959f",
            "labelLimit": 260,
            "titlePadding": 8,
        },
        "legend": {
            "labelFontSize": 12,
            "titleFontSize": 12,
            "labelColor": INK,
            "titleColor": INK,
            "orient": "bottom",
            "columns": 3,
            "labelLimit": 210,
            "symbolType": "square",
            "title": None,
        },
        "header": {"labelFontSize": 12, "labelColor": INK, "titleColor": INK, "labelLimit": 300},
        "title": {"fontSize": 13, "color": INK},
    }
    if height is not None:
        spec["height"] = height
    return spec


def _short(name: str, limit: int = 46) -> str:
    return name if len(name) <= limit else name[: limit - 1] + "…"


def _colours(domain: Sequence[str]) -> alt.Scale:
    return alt.Scale(domain=list(domain), range=[PALETTE[i % len(PALETTE)] for i in range(len(domain))])


def cost_by_month(name: str, title: str, alt_text: str, months: Sequence[str], lines: Mapping[str, Sequence[float]]) -> Chart:
    """Stacked bars, a bar a month: undiscounted cash by cost line; what comes in stands below zero."""
    values = [
        {"i": i, "month": month, "line": _short(line), "order": order, "usd": round(usd[i], 2)}
        for order, (line, usd) in enumerate(lines.items())
        for i, month in enumerate(months)
        if usd[i]
    ]
    step = 1 if len(months) <= 14 else 3 if len(months) <= 40 else 6
    shown = [i for i in range(len(months)) if i % step == 0]
    labels = " : ".join(f"datum.value === {i} ? '{months[i]}'" for i in shown) + " : ''"
    chart = (
        alt.Chart(alt.Data(values=values), width=WIDTH)
        .mark_bar()
        .encode(
            x=alt.X(
                "i:O",
                title=None,
                axis=alt.Axis(labelExpr=labels, labelAngle=0, ticks=False, labelOverlap=False),
                scale=alt.Scale(domain=list(range(len(months))), paddingInner=0.15),
            ),
            y=alt.Y("sum(usd):Q", title="US dollars a month", axis=alt.Axis(format="$~s", tickCount=6)),
            color=alt.Color("line:N", scale=_colours([_short(line) for line in lines])),
            order=alt.Order("order:Q"),
            description=alt.Description("label:N"),
        )
        .transform_calculate(label="datum.month + ', ' + datum.line + ': $' + format(datum.usd, ',.0f')")
    )
    return Chart(name, title, alt_text, _finished(chart, 260))


_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_DAY_LABELS = " : ".join(f"datum.value === {24 * i + 12} ? '{day}'" for i, day in enumerate(_DAYS)) + " : ''"
_WEEK_AXIS = {"title": None, "values": [24 * i + 12 for i in range(7)], "labelExpr": _DAY_LABELS, "grid": False, "ticks": False}


def _midnights() -> Any:
    return alt.Chart(alt.Data(values=[{"x": 24 * i} for i in range(8)])).mark_rule(stroke="#d9dee3", strokeWidth=1).encode(x="x:Q")


def requests_over_week(name: str, title: str, alt_text: str, series: Mapping[str, Sequence[float]]) -> Chart:
    """Stacked steps over the 168 hours: peak requests a second by who serves them."""
    values = [
        {
            "hour": hour,
            "end": hour + 1,
            "supply": _short(supply),
            "order": order,
            "req": round(rates[hour], 6),
            "label": f"{_DAYS[hour // 24]} {hour % 24:02d}:00, {_short(supply)}: {rates[hour]:.3g} requests a second",
        }
        for order, (supply, rates) in enumerate(series.items())
        for hour in range(len(rates))
        if rates[hour]
    ]
    bars = (
        alt.Chart(alt.Data(values=values), width=WIDTH)
        .mark_bar()
        .encode(
            x=alt.X("hour:Q", axis=alt.Axis(**_WEEK_AXIS), scale=alt.Scale(domain=[0, 168], nice=False)),
            x2="end:Q",
            y=alt.Y("req:Q", title="requests a second, highest hour", stack="zero"),
            color=alt.Color("supply:N", scale=_colours([_short(s) for s in series]), legend=alt.Legend(columns=2, labelLimit=300)),
            order=alt.Order("order:Q"),
            description=alt.Description("label:N"),
        )
    )
    return Chart(name, title, alt_text, _finished(alt.layer(_midnights(), bars), 200))


def gpus_over_week(name: str, title: str, alt_text: str, held: Sequence[float], running: Sequence[float], needed: Sequence[float]) -> Chart:
    """GPUs needed at the peak (bars) against GPUs running a replica and GPUs paid for (lines), over the 168 hours."""
    words = {"needed": "filled by the peak load", "running": "running a replica", "held": "paid for"}
    bars = [
        {
            "hour": h,
            "end": h + 1,
            "gpus": round(n, 4),
            "what": words["needed"],
            "label": f"{_DAYS[h // 24]} {h % 24:02d}:00: {n:.3g} GPUs filled, {running[h]:.3g} running, {held[h]:.3g} paid for",
        }
        for h, n in enumerate(needed)
    ]
    steps = [
        {"hour": h, "gpus": round(series[min(h, len(series) - 1)], 4), "what": words[key]}
        for key, series in (("running", running), ("held", held))
        for h in range(len(series) + 1)
    ]
    scale = alt.Scale(domain=list(words.values()), range=["#9cc3e4", "#17456b", LIMIT])
    x = alt.X("hour:Q", axis=alt.Axis(**_WEEK_AXIS), scale=alt.Scale(domain=[0, 168], nice=False))
    y = alt.Y("gpus:Q", title="GPUs")
    area = (
        alt.Chart(alt.Data(values=bars), width=WIDTH)
        .mark_bar()
        .encode(x=x, x2="end:Q", y=y, color=alt.Color("what:N", scale=scale), description=alt.Description("label:N"))
    )
    line = (
        alt.Chart(alt.Data(values=steps))
        .mark_line(interpolate="step-after", strokeWidth=2)
        .encode(
            x=x,
            y=y,
            color=alt.Color("what:N", scale=scale),
            strokeDash=alt.condition(f"datum.what === '{words['held']}'", alt.value([5, 3]), alt.value([1, 0])),
        )
    )
    return Chart(name, title, alt_text, _finished(alt.layer(_midnights(), area, line), 180))


def gpus_over_horizon(name: str, title: str, alt_text: str, months: Sequence[str], held: Sequence[float], needed: Sequence[float]) -> Chart:
    """GPUs filled in the highest timeslice of each month against GPUs held in it."""
    values = [
        {"i": i, "gpus": round(n, 4), "what": "filled by the peak load", "label": f"{months[i]}: {n:.3g} GPUs filled, {held[i]:.3g} held"}
        for i, n in enumerate(needed)
    ]
    steps = [{"i": i, "gpus": held[min(i, len(held) - 1)], "what": "held in that timeslice"} for i in range(len(held) + 1)]
    scale = alt.Scale(domain=["filled by the peak load", "held in that timeslice"], range=["#9cc3e4", "#17456b"])
    step = 3 if len(months) <= 40 else 6
    shown = " : ".join(f"datum.value === {i} ? '{month}'" for i, month in enumerate(months) if i % step == 0) + " : ''"
    axis = alt.Axis(title=None, values=[i for i in range(len(months)) if i % step == 0], labelExpr=shown, grid=False, labelAlign="left")
    x = alt.X("i:Q", axis=axis, scale=alt.Scale(domain=[0, len(months)], nice=False))
    bars = (
        alt.Chart(alt.Data(values=[{**v, "end": v["i"] + 0.85} for v in values]), width=WIDTH)
        .mark_bar()
        .encode(
            x=x, x2="end:Q", y=alt.Y("gpus:Q", title="GPUs"), color=alt.Color("what:N", scale=scale), description=alt.Description("label:N")
        )
    )
    line = (
        alt.Chart(alt.Data(values=steps))
        .mark_line(interpolate="step-after", strokeWidth=2)
        .encode(x=x, y="gpus:Q", color=alt.Color("what:N", scale=scale))
    )
    return Chart(name, title, alt_text, _finished(alt.layer(bars, line), 160))


def memory_by_term(
    name: str, title: str, alt_text: str, bars: Mapping[str, Mapping[str, float]], usable: Mapping[str, float], device: Mapping[str, float]
) -> Chart:
    """A bar per replica, GB by term; the tick is the room that may be used, the thin line what the GPUs hold."""
    order = [_short(key, 60) for key in bars]
    values = [
        {"row": _short(key, 60), "term": term, "order": i, "gb": round(size, 4), "label": f"{_short(key, 60)}, {term}: {size:.1f} GB"}
        for key, terms in bars.items()
        for i, (term, size) in enumerate(terms.items())
    ]
    marks = [{"row": _short(key, 60), "gb": value, "what": "usable"} for key, value in usable.items()]
    ends = [{"row": _short(key, 60), "gb": value, "what": "the GPUs' memory"} for key, value in device.items()]
    terms = list(next(iter(bars.values())))
    y = alt.Y("row:N", sort=order, title=None, axis=alt.Axis(labelLimit=330, orient="left", domain=False, ticks=False))
    stack = (
        alt.Chart(alt.Data(values=values), width=WIDTH - 230)
        .mark_bar(size=18)
        .encode(
            y=y,
            x=alt.X("gb:Q", title="GB (10⁹ bytes), all GPUs of a replica", stack="zero"),
            color=alt.Color("term:N", scale=_colours(terms)),
            order=alt.Order("order:Q"),
            description=alt.Description("label:N"),
        )
    )
    tick = alt.Chart(alt.Data(values=marks)).mark_tick(color=LIMIT, thickness=3, size=30).encode(y=y, x="gb:Q")
    rule = alt.Chart(alt.Data(values=ends)).mark_tick(color=INK, thickness=1, size=30).encode(y=y, x="gb:Q")
    return Chart(
        name,
        title,
        alt_text,
        _finished(alt.layer(stack, tick, rule), max(60, 34 * len(order))),
        note="Red mark: the memory that may be used. Thin grey mark: all the memory of the GPUs.",
    )


def roofline(name: str, title: str, alt_text: str, roofs: Mapping[str, tuple[float, float]], points: Iterable[Mapping[str, Any]]) -> Chart:
    """Log-log: a roof (peak TFLOP/s, GB/s) per GPU and type, and where each workload's phases stand under it."""
    dots = [dict(point) for point in points]
    xs = [p["intensity"] for p in dots] + [peak * 1e3 / bandwidth for peak, bandwidth in roofs.values()]
    low, high = 10 ** math.floor(math.log10(min(xs)) - 0.1), 10 ** math.ceil(math.log10(max(xs)) + 0.1)
    lines, ridges = [], []
    for key, (peak, bandwidth) in roofs.items():
        ridge = peak * 1e3 / bandwidth
        lines += [{"roof": _short(key), "x": x, "y": min(peak, x * bandwidth / 1e3), "k": i} for i, x in enumerate((low, ridge, high))]
        ridges.append({"roof": _short(key), "x": ridge, "y": peak, "text": f"ridge {ridge:,.0f}"})
    ys = [line["y"] for line in lines] + [p["tflop"] for p in dots]
    domain = [10 ** math.floor(math.log10(min(ys))), 10 ** math.ceil(math.log10(max(ys)) + 0.05)]
    colour = alt.Color("roof:N", scale=_colours([_short(key) for key in roofs]), legend=alt.Legend(columns=2, labelLimit=300))
    x = alt.X(
        "x:Q",
        scale=alt.Scale(type="log", domain=[low, high], nice=False),
        title="arithmetic intensity, FLOP per byte",
        axis=alt.Axis(format="~s", grid=True, tickCount=6),
    )
    y = alt.Y(
        "y:Q", scale=alt.Scale(type="log", domain=domain, nice=False), title="TFLOP/s of one GPU", axis=alt.Axis(format="~s", tickCount=4)
    )
    roof = alt.Chart(alt.Data(values=lines), width=WIDTH).mark_line(strokeWidth=2).encode(x=x, y=y, color=colour, order=alt.Order("k:Q"))
    knee = alt.Chart(alt.Data(values=ridges)).mark_text(dy=-9, fontSize=12, font=FONT).encode(x="x:Q", y="y:Q", text="text:N", color=colour)
    marks = [
        {
            "x": p["intensity"],
            "y": p["tflop"],
            "roof": _short(str(p["roof"])),
            "phase": p["phase"],
            "no": p["no"],
            "label": f"{_short(str(p['workload']))}, {p['phase']}: {p['intensity']:.3g} FLOP/byte, {p['tflop']:.3g} TFLOP/s",
        }
        for p in dots
    ]
    shape = alt.Shape(
        "phase:N", scale=alt.Scale(domain=["prefill", "decode"], range=["square", "circle"]), legend=alt.Legend(symbolType="circle")
    )
    dot = (
        alt.Chart(alt.Data(values=marks))
        .mark_point(filled=True, size=90, opacity=1)
        .encode(x="x:Q", y="y:Q", color=colour, shape=shape, description=alt.Description("label:N"))
    )
    text = (
        alt.Chart(alt.Data(values=marks))
        .mark_text(align="left", dx=9, dy=4, fontSize=12, font=FONT, color=INK)
        .encode(x="x:Q", y="y:Q", text="no:N")
    )
    return Chart(
        name,
        title,
        alt_text,
        _finished(alt.layer(roof, knee, dot, text), 300),
        note="Numbers name the rows of the table below. Squares: prefill. Circles: decode.",
    )


def break_even(name: str, title: str, alt_text: str, rows: Sequence[Mapping[str, Any]]) -> Chart:
    """Cost a month against use: owning is flat, the rival rises; the dot is where the plan stands today. A panel per pair."""
    panels = []
    for row in rows:
        top = max(row["own"], row["rival_full"])
        lines = [
            {"x": x, "y": y, "what": what}
            for what, ends in (("owning", (row["own"], row["own"])), ("the rival", (0.0, row["rival_full"])))
            for x, y in zip((0.0, 1.0), ends, strict=True)
        ]
        scale = alt.Scale(domain=["owning", "the rival"], range=[PALETTE[0], PALETTE[2]])
        x = alt.X("x:Q", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(format=".0%", tickCount=5, title=row["x_title"]))
        y = alt.Y("y:Q", scale=alt.Scale(domain=[0, top * 1.1]), axis=alt.Axis(format="$~s", tickCount=4, title="US dollars a month"))
        layers = [
            alt.Chart(alt.Data(values=lines), width=250, height=150)
            .mark_line(strokeWidth=2)
            .encode(x=x, y=y, color=alt.Color("what:N", scale=scale))
        ]
        if row["flip"] is not None:
            layers.append(alt.Chart(alt.Data(values=[{"x": row["flip"]}])).mark_rule(strokeDash=[4, 3], color=INK).encode(x="x:Q"))
        if row["today"] is not None:
            dot = [{"x": row["today"], "y": row["own"], "label": f"the plan: {row['today']:.0%}"}]
            layers.append(
                alt.Chart(alt.Data(values=dot))
                .mark_point(filled=True, size=90, color=LIMIT, opacity=1)
                .encode(x="x:Q", y="y:Q", description=alt.Description("label:N"))
            )
        panels.append(
            alt.layer(*layers).properties(title=alt.TitleParams([_short(t, 44) for t in row["title"]], fontSize=12, anchor="start"))
        )
    chart = alt.concat(*panels, columns=2, spacing=30)
    return Chart(name, title, alt_text, _finished(chart), note="Red dot: where the plan stands. Dashed: where the two cost the same.")


def alternatives(name: str, title: str, alt_text: str, rows: Mapping[str, float]) -> Chart:
    """A bar per plan: discounted cost over the horizon; the plan itself first."""
    order = [_short(key) for key in rows]
    values = [
        {"plan": _short(key), "usd": usd, "chosen": i == 0, "label": f"{_short(key)}: ${usd:,.0f}"}
        for i, (key, usd) in enumerate(rows.items())
    ]
    y = alt.Y("plan:N", sort=order, title=None, axis=alt.Axis(labelLimit=230, domain=False, ticks=False))
    base = alt.Chart(alt.Data(values=values), width=WIDTH - 160)
    bars = base.mark_bar(size=18).encode(
        y=y,
        x=alt.X("usd:Q", title="US dollars over the term, discounted (NPV)", axis=alt.Axis(format="$~s", tickCount=6)),
        color=alt.condition("datum.chosen", alt.value(PALETTE[0]), alt.value("#9aa3ab")),
        description=alt.Description("label:N"),
    )
    return Chart(name, title, alt_text, _finished(bars, 32 * len(order)))


_ID = re.compile(r'(\bid="|url\(#|href="#)([^")]+)')


def draw(chart: Chart) -> str:
    """Return the chart as SVG. Same chart, same bytes: Vega's counters in ids are renumbered and prefixed with the chart's name."""
    import vl_convert

    svg: str = vl_convert.vegalite_to_svg(chart.spec, allowed_base_urls=[])
    seen: dict[str, str] = {}
    return _ID.sub(lambda m: m.group(1) + seen.setdefault(m.group(2), f"{chart.name}_{len(seen)}"), svg)


def draw_all(charts: Iterable[Chart]) -> dict[str, str]:
    """Return chart name → SVG."""
    return {chart.name: draw(chart) for chart in charts}
