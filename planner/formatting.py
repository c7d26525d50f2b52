"""The only place that rounds: numbers, money, bytes, times, dates and ids as people read them. `None` is always "–"."""

from __future__ import annotations

import math
import re
from datetime import date

from planner.units import BYTES_PER_GB, BYTES_PER_GIB, HOURS_PER_MONTH, MONTHS_PER_YEAR

NOTHING = "–"
MINUS = "−"
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def _signed(value: float, text: str) -> str:
    return MINUS + text if value < 0 and re.search(r"[1-9]", text) else text


def _absent(value: float | None) -> bool:
    return value is None or not math.isfinite(value)


def number(value: float | None, digits: int = 3) -> str:
    """Return a number to `digits` significant digits, thousands separated; whole parts are never cut.

    >>> number(1234.5), number(0.012345), number(2.0), number(None)
    ('1,234', '0.0123', '2', '–')
    """
    if value is None or not math.isfinite(value):
        return NOTHING
    size = abs(value)
    if size == 0:
        return "0"
    decimals = max(0, digits - 1 - math.floor(math.log10(size)))
    if decimals > 12:
        return _signed(value, f"{size:.{digits - 1}e}")
    text = f"{size:,.{decimals}f}"
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return _signed(value, text)


def count(value: float | None) -> str:
    """Return a whole number with thousands separators.

    >>> count(327680), count(None)
    ('327,680', '–')
    """
    return NOTHING if value is None or not math.isfinite(value) else _signed(value, f"{abs(value):,.0f}")


def decimals(value: float | None, places: int = 1) -> str:
    """Return a number with a fixed number of decimals, so that a column lines up.

    >>> decimals(12.34), decimals(-1.06, 1)
    ('12.3', '−1.1')
    """
    return NOTHING if value is None or not math.isfinite(value) else _signed(value, f"{abs(value):,.{places}f}")


def money(usd: float | None) -> str:
    """Return dollars to the dollar, thousands separated.

    >>> money(131400.4), money(-1250), money(-0.2), money(None)
    ('$131,400', '−$1,250', '$0', '–')
    """
    return NOTHING if usd is None or not math.isfinite(usd) else _signed(usd, f"${abs(usd):,.0f}")


def money_short(usd: float | None) -> str:
    """Return dollars in thousands or millions, for narrow columns and axes.

    >>> money_short(1_314_000), money_short(131_400), money_short(-52), money_short(999_950)
    ('$1.31 M', '$131 k', '−$52', '$1.00 M')
    """
    if usd is None or not math.isfinite(usd):
        return NOTHING
    size = abs(usd)
    if size >= 999_500:
        text = f"${size / 1e6:,.2f} M" if size < 9_995_000 else f"${size / 1e6:,.1f} M"
    elif size >= 9_950:
        text = f"${size / 1e3:,.0f} k"
    elif size >= 999.5:
        text = f"${size / 1e3:,.1f} k"
    else:
        text = f"${size:,.0f}"
    return _signed(usd, text)


def price(usd: float | None) -> str:
    """Return a unit price: cents from a dollar up, three significant digits below, never "$0" for a price above 0.

    >>> price(31.92), price(0.25), price(0.00042), price(1234.5), price(2)
    ('$31.92', '$0.25', '$0.00042', '$1,234.50', '$2.00')
    """
    if usd is None or not math.isfinite(usd):
        return NOTHING
    size = abs(usd)
    if size >= 1 or size == 0:
        return _signed(usd, f"${size:,.2f}")
    text = number(size, 3)
    if "." in text and len(text.split(".")[1]) < 2:
        text += "0"
    return _signed(usd, f"${text}")


def money_difference(usd: float | None) -> str:
    """Return a difference with its sign.

    >>> money_difference(42000.0), money_difference(-10.0), money_difference(0.0)
    ('+$42,000', '−$10', '$0')
    """
    text = money(usd)
    return f"+{text}" if usd is not None and math.isfinite(usd) and usd > 0 and text != "$0" else text


def percent(frac: float | None, places: int | None = None) -> str:
    """Return a fraction as a percentage; small ones keep their first digits.

    >>> percent(0.4213), percent(0.00007), percent(1.0), percent(0.0), percent(-0.25)
    ('42 %', '0.007 %', '100 %', '0 %', '−25 %')
    """
    if frac is None or not math.isfinite(frac):
        return NOTHING
    size = abs(frac) * 100
    if places is None:
        if 0 < size < 0.995:
            return _signed(frac, f"{number(size, 2)} %")
        places = 0 if size >= 9.95 or size == 0 else 1
    text = f"{size:,.{places}f}"
    if places and "." in text:
        text = text.rstrip("0").rstrip(".")
    return _signed(frac, f"{text} %")


def percent_difference(frac: float | None) -> str:
    """Return a relative difference with its sign.

    >>> percent_difference(0.12), percent_difference(-0.031)
    ('+12 %', '−3.1 %')
    """
    text = percent(frac)
    return f"+{text}" if frac is not None and math.isfinite(frac) and frac > 0 else text


def gb(size_bytes: float | None) -> str:
    """Return bytes in GB (10⁹) with one decimal.

    >>> gb(85_899_345_920)
    '85.9 GB'
    """
    return NOTHING if size_bytes is None else f"{decimals(size_bytes / BYTES_PER_GB)} GB"


def gib(size_bytes: float | None) -> str:
    """Return bytes in GiB (2³⁰) with one decimal.

    >>> gib(85_899_345_920)
    '80.0 GiB'
    """
    return NOTHING if size_bytes is None else f"{decimals(size_bytes / BYTES_PER_GIB)} GiB"


def data_size(size_bytes: float | None) -> str:
    """Return a size in the unit that suits it: bytes, kB, MB or GB.

    >>> data_size(327680), data_size(140e9), data_size(512)
    ('328 kB', '140 GB', '512 B')
    """
    if size_bytes is None or not math.isfinite(size_bytes):
        return NOTHING
    for limit, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if abs(size_bytes) >= limit:
            return f"{number(size_bytes / limit)} {unit}"
    return f"{number(size_bytes)} B"


def hours(value: float | None) -> str:
    """Return hours, thousands separated.

    >>> hours(26280.0), hours(1.5)
    ('26,280 h', '1.5 h')
    """
    return NOTHING if _absent(value) else f"{number(value, 3)} h"


def rate(value: float | None, unit: str = "req/s") -> str:
    """Return a rate to three significant digits with its unit.

    >>> rate(0.6944), rate(12345.0, "tok/s")
    ('0.694 req/s', '12,345 tok/s')
    """
    return NOTHING if _absent(value) else f"{number(value)} {unit}"


def milliseconds(value: float | None) -> str:
    """Return a latency: milliseconds below ten seconds, seconds or minutes above.

    >>> milliseconds(1234.0), milliseconds(43.21), milliseconds(64000.0), milliseconds(600_000.0)
    ('1,234 ms', '43 ms', '64 s', '10 min')
    """
    if value is None or not math.isfinite(value):
        return NOTHING
    if value < 10_000:
        return f"{number(value, 2)} ms"
    return f"{number(value / 1e3, 3)} s" if value < 120_000 else f"{number(value / 6e4, 3)} min"


def seconds(value: float | None) -> str:
    """Return a duration in seconds, minutes or hours.

    >>> seconds(2.345), seconds(600.0), seconds(9000.0)
    ('2.35 s', '10 min', '2.5 h')
    """
    if value is None or not math.isfinite(value):
        return NOTHING
    if value < 120:
        return f"{number(value)} s"
    return f"{number(value / 60)} min" if value < 7200 else f"{number(value / 3600)} h"


def tokens(value: float | None) -> str:
    """Return a token count; millions and billions are written so.

    >>> tokens(8192), tokens(200e6), tokens(1.2e9)
    ('8,192 tok', '200 M tok', '1.2 B tok')
    """
    if value is None or not math.isfinite(value):
        return NOTHING
    if abs(value) >= 1e9:
        return f"{number(value / 1e9)} B tok"
    return f"{number(value / 1e6)} M tok" if abs(value) >= 1e6 else f"{count(value)} tok"


def big_count(value: float | None) -> str:
    """Return a large count in thousands, millions or billions.

    >>> big_count(1_826_000.0), big_count(640.0), big_count(45_000)
    ('1.83 million', '640', '45,000')
    """
    if value is None or not math.isfinite(value):
        return NOTHING
    if abs(value) >= 1e9:
        return f"{number(value / 1e9)} billion"
    return f"{number(value / 1e6)} million" if abs(value) >= 1e6 else count(value)


def day(value: date | None) -> str:
    """Return a date without ambiguity of order.

    >>> day(date(2026, 11, 30))
    '30 Nov 2026'
    """
    return NOTHING if value is None else f"{value.day} {_MONTHS[value.month - 1]} {value.year}"


def month(start: str, index: int) -> str:
    """Return the name of month `index` of a plan that starts in `start` (`YYYY-MM`).

    >>> month("2026-12", 0), month("2026-12", 13)
    ('Dec 2026', 'Jan 2028')
    """
    year, first = int(start[:4]), int(start[5:7])
    months = first - 1 + index
    return f"{_MONTHS[months % MONTHS_PER_YEAR]} {year + months // MONTHS_PER_YEAR}"


def term(months: int) -> str:
    """Return a length in months, and in years where it is whole years.

    >>> term(36), term(1), term(18)
    ('36 months (3 years)', '1 month', '18 months')
    """
    text = plural(months, "month")
    return f"{text} ({plural(months // MONTHS_PER_YEAR, 'year')})" if months and months % MONTHS_PER_YEAR == 0 else text


def plural(value: float, word: str, many: str | None = None) -> str:
    """Return a count with its word.

    >>> plural(1, "node"), plural(1200, "node"), plural(2, "day's price", "days' prices")
    ('1 node', '1,200 nodes', "2 days' prices")
    """
    return f"{number(value)} {word if value == 1 else many or word + 's'}"


def name_of(identifier: str | None) -> str:
    """Return an id as words: `_` and `.` become spaces, a point between digits stays.

    >>> name_of("office_rack"), name_of("openai.gpt_4.1_mini"), name_of(None)
    ('office rack', 'openai gpt 4.1 mini', '–')
    """
    if not identifier:
        return NOTHING
    return re.sub(r"(?<!\d)\.|\.(?!\d)", " ", identifier).replace("_", " ").strip()


def format_name(identifier: str | None) -> str:
    """Return a weight or KV-cache format as the field writes it.

    >>> format_name("fp8"), format_name("awq_int4"), format_name("q4_k_m"), format_name(None)
    ('FP8', 'AWQ INT4', 'Q4_K_M', '–')
    """
    if not identifier:
        return NOTHING
    upper = identifier.upper()
    return upper if re.match(r"I?Q\d", upper) else name_of(upper)


def sums_up(parts: list[float], places: int = 1) -> list[float]:
    """Return the parts rounded so that they add up to their rounded sum: what is printed then adds up on paper.

    >>> sums_up([1.26, 1.26, 1.26])      # 3.78 is printed as 3.8
    [1.3, 1.3, 1.2]
    """
    scale = 10.0**places
    floors = [math.floor(part * scale) for part in parts]
    missing = round(math.fsum(parts) * scale) - sum(floors)
    order = sorted(range(len(parts)), key=lambda i: (floors[i] - parts[i] * scale, i))
    for i in order[: max(0, missing)]:
        floors[i] += 1
    return [floor / scale for floor in floors]


def sentence(text: str) -> str:
    """Return `text` with a capital first letter and a full stop.

    >>> sentence("kv room binds"), sentence("Done.")
    ('Kv room binds.', 'Done.')
    """
    text = text.strip()
    if not text:
        return ""
    text = text[0].upper() + text[1:]
    return text if text[-1] in ".!?…:" else text + "."


def hours_on_all_month(node_hours: float | None) -> str:
    """Return node-hours a month beside what one node held all month would be.

    >>> hours_on_all_month(365.0)
    '365 h a month (0.5 of a node held all month)'
    """
    if node_hours is None:
        return NOTHING
    return f"{hours(node_hours)} a month ({number(node_hours / HOURS_PER_MONTH, 2)} of a node held all month)"


_UNIT_WORDS = {
    "usd": "$",
    "usd_per_node_hour": "$ per node-hour",
    "usd_per_gpu_hour": "$ per GPU-hour",
    "usd_per_mtok": "$ per million tokens",
    "usd_per_kwh": "$ per kWh",
    "usd_per_month": "$ a month",
    "usd_per_year": "$ a year",
    "usd_per_node_month": "$ per node and month",
    "usd_per_kw_month": "$ per kW and month",
    "usd_per_t": "$ per tonne",
    "usd_per_request": "$ per request",
    "usd_per_hour": "$ an hour",
    "usd_per_node": "$ per node",
    "gb_per_s": "GB/s",
    "bytes_per_s": "B/s",
    "tflop_per_s": "TFLOP/s",
    "flop_per_s": "FLOP/s",
    "flop_per_byte": "FLOP/byte",
    "bytes": "bytes",
    "gb": "GB",
    "gib": "GiB",
    "mib": "MiB",
    "bytes_per_tok": "bytes per token",
    "ms": "ms",
    "s": "s",
    "us": "µs",
    "hours": "hours",
    "days": "days",
    "months": "months",
    "years": "years",
    "tok": "tokens",
    "mtok": "million tokens",
    "tok_per_s": "tok/s",
    "req_per_s": "req/s",
    "requests_per_day": "requests a day",
    "tok_per_min": "tokens a minute",
    "req_per_min": "requests a minute",
    "w": "W",
    "kw": "kW",
    "kwh": "kWh",
    "g_per_kwh": "g CO₂ per kWh",
    "frac": "",
    "count": "",
    "frac_per_year": "a year",
    "frac_per_month": "a month",
    "bytes_per_value": "bytes per value",
    "bits_per_weight": "bits per weight",
}
_FIXED_MONEY = frozenset({"usd", "usd_per_month", "usd_per_year"})


def unit_words(unit: str | None) -> str:
    """Return a unit suffix of this project as it is spoken; other units unchanged.

    >>> unit_words("usd_per_node_hour"), unit_words("GB/s"), unit_words("frac")
    ('$ per node-hour', 'GB/s', '')
    """
    if not unit:
        return ""
    return _UNIT_WORDS.get(unit.strip().lstrip("_"), unit)


def quantity(value: float | str | None, unit: str | None = None) -> str:
    """Return a figure with its unit, rounded as its kind asks.

    >>> quantity(31.92, "usd_per_node_hour"), quantity(0.45, "frac"), quantity(85_899_345_920, "bytes"), quantity(8, "count")
    ('$31.92 per node-hour', '45 %', '85.9 GB (80.0 GiB)', '8')
    >>> quantity("fp8"), quantity(0.08, "frac_per_year"), quantity(1500.0, "ms"), quantity(3.35, "TB/s")
    ('fp8', '8 % a year', '1,500 ms', '3.35 TB/s')
    """
    if value is None:
        return NOTHING
    if isinstance(value, str):
        return f"{value} {unit_words(unit)}".strip()
    key = (unit or "").strip().lstrip("_").lower()
    words = unit_words(unit)
    if key.startswith(("usd", "$")) or words.startswith("$"):
        shown = money(value) if key in _FIXED_MONEY and abs(value) >= 1000 else price(value)
        return f"{shown} {words.removeprefix('$').strip()}".strip() if words.startswith("$") else f"{shown} {words[3:].strip()}".strip()
    if key.startswith("frac"):
        return f"{percent(value)} {words}".strip()
    if key == "bytes":
        return f"{gb(value)} ({gib(value)})" if abs(value) >= BYTES_PER_GB else f"{count(value)} bytes"
    if key in ("bytes_per_tok", "count", "tok"):
        return f"{count(value) if float(value).is_integer() else number(value, 4)} {words}".strip()
    return f"{number(value, 4)} {words}".strip()
