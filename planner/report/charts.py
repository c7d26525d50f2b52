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
_DOLLARS = "datum.value === 0 ? '$0' : datum.label"
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
            "labelLimit": 230,
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


def _label_step(months_count: int) -> int:
    return 1 if months_count <= 9 else 2 if months_count <= 13 else 6 if months_count <= 48 else 12


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
    step = _label_step(len(months) - 1)
    shown = [i for i in range(len(months)) if i % step == 0]
    labels = " : ".join(f"datum.value === {i} ? '{months[i]}'" for i in shown) + " : ''"
    chart = (
        alt.Chart(alt.Data(values=values), width=WIDTH)
        .mark_bar()
        .encode(
            x=alt.X(
                "i:O",
                title=None,
                axis=alt.Axis(labelExpr=labels, labelAngle=0, ticks=False, labelOverlap=False, offset=6, labelFontSize=11),
                scale=alt.Scale(domain=list(range(len(months))), paddingInner=0.15),
            ),
            y=alt.Y("sum(usd):Q", title="US dollars a month", axis=alt.Axis(format="$~s", tickCount=6, labelExpr=_DOLLARS)),
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


def _stretches(rates: Sequence[float]) -> list[tuple[int, int, float]]:
    """Return (from, to, value) of alike hours, cut at midnight."""
    found: list[tuple[int, int, float]] = []
    for hour, value in enumerate(rates):
        if found and hour % 24 and found[-1][2] == value:
            found[-1] = (found[-1][0], hour + 1, value)
        else:
            found.append((hour, hour + 1, value))
    return found


def _clock(start: int, end: int) -> str:
    return f"{_DAYS[start // 24]} {start % 24:02d}:00 to {(end - 1) % 24 + 1:02d}:00"


def requests_over_week(name: str, title: str, alt_text: str, series: Mapping[str, Sequence[float]]) -> Chart:
    """Stacked steps over the 168 hours: peak requests a second by who serves them."""
    below = [0.0] * len(next(iter(series.values())))
    values = []
    for supply, rates in series.items():
        top = [low + rate for low, rate in zip(below, rates, strict=True)]
        for start, end, high in _stretches(top):
            rate = rates[start]
            if rate > 0:
                label = f"{_clock(start, end)}, {_short(supply)}: {rate:.3g} requests a second"
                values.append(
                    {
                        "hour": start,
                        "end": end,
                        "low": round(high - rate, 6),
                        "high": round(high, 6),
                        "supply": _short(supply),
                        "label": label,
                    }
                )
        below = top
    bars = (
        alt.Chart(alt.Data(values=values), width=WIDTH)
        .mark_rect()
        .encode(
            x=alt.X("hour:Q", axis=alt.Axis(**_WEEK_AXIS), scale=alt.Scale(domain=[0, 168], nice=False)),
            x2="end:Q",
            y=alt.Y("low:Q", title="requests a second, highest hour", scale=alt.Scale(domainMin=0, nice=True), axis=alt.Axis(tickCount=5)),
            y2="high:Q",
            color=alt.Color("supply:N", scale=_colours([_short(s) for s in series]), legend=alt.Legend(columns=2, labelLimit=300)),
            description=alt.Description("label:N"),
        )
    )
    return Chart(name, title, alt_text, _finished(alt.layer(_midnights(), bars), 190))


def _filled(values: list[dict[str, Any]], x: Any, scale: Any) -> Any:
    """Bars from zero to `gpus` over [x, end]."""
    return (
        alt.Chart(alt.Data(values=[{**value, "zero": 0} for value in values]), width=WIDTH)
        .mark_rect()
        .encode(
            x=x,
            x2="end:Q",
            y=alt.Y("gpus:Q", title="GPUs", scale=alt.Scale(domainMin=0, nice=True), axis=alt.Axis(tickCount=5, format="d")),
            y2="zero:Q",
            color=alt.Color("what:N", scale=scale),
            description=alt.Description("label:N"),
        )
    )


def gpus_over_week(name: str, title: str, alt_text: str, held: Sequence[float], running: Sequence[float], needed: Sequence[float]) -> Chart:
    """GPUs filled at the peak (bars) against GPUs running a replica and GPUs paid for (lines), over the 168 hours."""
    words = {"needed": "filled by the peak load", "running": "running a replica", "held": "paid for"}
    bars = [
        {
            "hour": start,
            "end": end,
            "gpus": round(value, 4),
            "what": words["needed"],
            "label": f"{_clock(start, end)}: {value:.3g} GPUs filled, {running[start]:.3g} running, {held[start]:.3g} paid for",
        }
        for start, end, value in _stretches(needed)
    ]
    steps = [
        {"hour": hour, "gpus": round(series[min(hour, len(series) - 1)], 4), "what": words[key]}
        for key, series in (("running", running), ("held", held))
        for hour in range(len(series) + 1)
    ]
    scale = alt.Scale(domain=list(words.values()), range=["#9cc3e4", "#17456b", LIMIT])
    x = alt.X("hour:Q", axis=alt.Axis(**_WEEK_AXIS), scale=alt.Scale(domain=[0, 168], nice=False))
    dash = alt.condition(f"datum.what === '{words['held']}'", alt.value([5, 3]), alt.value([1, 0]))
    line = (
        alt.Chart(alt.Data(values=steps))
        .mark_line(interpolate="step-after", strokeWidth=2)
        .encode(x=x, y="gpus:Q", color=alt.Color("what:N", scale=scale), strokeDash=dash)
    )
    return Chart(name, title, alt_text, _finished(alt.layer(_midnights(), _filled(bars, x, scale), line), 170))


def gpus_over_horizon(name: str, title: str, alt_text: str, months: Sequence[str], held: Sequence[float], needed: Sequence[float]) -> Chart:
    """GPUs filled in the highest timeslice of each month against GPUs held in it."""
    words = ("filled by the peak load", "held in that timeslice")
    values = [
        {"i": i, "end": i + 0.85, "gpus": round(n, 4), "what": words[0], "label": f"{months[i]}: {n:.3g} GPUs filled, {held[i]:.3g} held"}
        for i, n in enumerate(needed)
    ]
    steps = [{"i": i, "gpus": held[min(i, len(held) - 1)], "what": words[1]} for i in range(len(held) + 1)]
    scale = alt.Scale(domain=list(words), range=["#9cc3e4", "#17456b"])
    step = _label_step(len(months))
    ticks = [i for i in range(len(months)) if i % step == 0]
    shown = " : ".join(f"datum.value === {i} ? '{months[i]}'" for i in ticks) + " : ''"
    axis = alt.Axis(title=None, values=ticks, labelExpr=shown, grid=False, labelAlign="left", labelOverlap=False, labelFontSize=11)
    x = alt.X("i:Q", axis=axis, scale=alt.Scale(domain=[0, len(months)], nice=False))
    line = (
        alt.Chart(alt.Data(values=steps))
        .mark_line(interpolate="step-after", strokeWidth=2)
        .encode(x=x, y="gpus:Q", color=alt.Color("what:N", scale=scale))
    )
    return Chart(name, title, alt_text, _finished(alt.layer(_filled(values, x, scale), line), 150))


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
    y = alt.Y("row:N", sort=order, title=None, axis=alt.Axis(labelLimit=330, orient="left", domain=False, ticks=False, labelPadding=8))
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


def _decades(low: float, high: float) -> list[float]:
    return [
        10.0**i
        for i in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        if low <= 10.0**i * 1.0001 and 10.0**i <= high * 1.0001
    ]


def roofline(name: str, title: str, alt_text: str, roofs: Mapping[str, tuple[float, float]], points: Iterable[Mapping[str, Any]]) -> Chart:
    """Log-log: a roof (peak TFLOP/s, GB/s) per GPU and type, and where each workload's phases stand under it."""
    dots = [dict(point) for point in points if point["intensity"] > 0 and point["tflop"] > 0]
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
        axis=alt.Axis(format="~s", grid=True, values=_decades(low, high)),
    )
    y = alt.Y(
        "y:Q",
        scale=alt.Scale(type="log", domain=domain, nice=False),
        title="TFLOP/s of one GPU",
        axis=alt.Axis(format="~s", values=_decades(*domain)),
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
    shape = alt.Shape("phase:N", scale=alt.Scale(domain=["prefill", "decode"], range=["square", "circle"]), legend=None)
    dot = (
        alt.Chart(alt.Data(values=marks))
        .mark_point(filled=True, size=90, opacity=1)
        .encode(x="x:Q", y="y:Q", color=colour, shape=shape, description=alt.Description("label:N"))
    )
    together: dict[tuple[Any, ...], list[str]] = {}
    for p in dots:
        together.setdefault((round(math.log10(p["intensity"]), 2), round(math.log10(p["tflop"]), 2)), []).append(p["no"])
    tags = [{"x": 10**log_x, "y": 10**log_y, "no": ", ".join(found)} for (log_x, log_y), found in together.items()]
    text = (
        alt.Chart(alt.Data(values=tags))
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
        top = max(float(row["own"]), float(row["rival_full"]), 1.0)
        lines = [
            {"x": x, "y": y, "what": what}
            for what, ends in (("owning", (row["own"], row["own"])), ("the rival", (0.0, row["rival_full"])))
            for x, y in zip((0.0, 1.0), ends, strict=True)
        ]
        scale = alt.Scale(domain=["owning", "the rival"], range=[PALETTE[0], PALETTE[2]])
        x = alt.X("x:Q", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(format=".0%", values=[0, 0.25, 0.5, 0.75, 1], title=row["x_title"]))
        y = alt.Y(
            "y:Q",
            scale=alt.Scale(domain=[0, top * 1.1]),
            axis=alt.Axis(format="$~s", tickCount=4, labelExpr=_DOLLARS, title="US dollars a month"),
        )
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
    spec = _finished(alt.concat(*panels, columns=2, spacing=30))
    spec["config"]["legend"]["symbolType"] = "stroke"
    spec["config"]["legend"]["symbolStrokeWidth"] = 3
    return Chart(name, title, alt_text, spec, note="Red dot: where the plan stands. Dashed: where the two cost the same.")


def alternatives(name: str, title: str, alt_text: str, rows: Mapping[str, float]) -> Chart:
    """A bar per plan: discounted cost over the horizon; the plan itself first."""
    order = [_short(key) for key in rows]
    values = [
        {"plan": _short(key), "usd": usd, "chosen": i == 0, "label": f"{_short(key)}: ${usd:,.0f}"}
        for i, (key, usd) in enumerate(rows.items())
    ]
    y = alt.Y("plan:N", sort=order, title=None, axis=alt.Axis(labelLimit=230, domain=False, ticks=False, labelPadding=8))
    base = alt.Chart(alt.Data(values=values), width=WIDTH - 160)
    bars = base.mark_bar(size=18).encode(
        y=y,
        x=alt.X("usd:Q", title="US dollars over the term, discounted (NPV)", axis=alt.Axis(format="$~s", tickCount=6, labelExpr=_DOLLARS)),
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
