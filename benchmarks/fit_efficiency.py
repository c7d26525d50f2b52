"""Fit `hardware/efficiency/steps.yaml` from a folder of measured runs, and print the error on what was held out.

    python benchmarks/fit_efficiency.py MEASURED_DIR [--write]

Five constants for each (engine, GPU family, format class): MBU and MFU of decode, MFU of prefill, an overhead per layer
and one per request (0 where no TTFT was measured), each pulled towards what the engine reaches over all GPUs. Whole groups
of source × accelerator × model are kept from the fit by a hash (`HELD_OUT_PERCENT`), fixed before the first fit.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import math
import statistics
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from scipy.optimize import minimize

from planner.catalog import Catalog, load_catalog
from planner.physics.efficiency import MAX_MBU_FRAC, choose_efficiency, format_class, link_between, peak_flop_per_s
from planner.physics.serving import RequestMix, latency_at_concurrency
from planner.physics.steps import Efficiency, EfficiencyBand, StepModel, step_model
from planner.physics.work import work_of

FILES = ("singlestream_llamacpp", "singlestream_other", "server_inferencex", "server_trtllm_nim_blogs", "server_gpustack")
HELD_OUT_PERCENT = 30
MIN_ROWS = 8
MAX_FIT_ROWS = 120
DECODE = {"decode_tok_s", "batched_decode_tok_s"}
WHOLE = {"gen_tok_s_incl_prefill", "total_tok_s_incl_prefill"}
TPOT = {"tpot_ms", "tpot_mean_ms", "tpot_median_ms", "itl_mean_ms"}
TTFT = {"ttft_ms", "ttft_mean_ms"}
SERVER = {"server_output_tok_s", "server_total_tok_s"}
WEIGHT = {"decode": 1.0, "whole": 1.0, "tpot": 1.0, "server": 0.7, "prefill": 0.7, "ttft": 0.3}


@dataclass
class Row:
    id: str
    group: tuple[str, str, str]
    cell: tuple[str, str, str]
    metric: str
    kind: str
    value: float
    step: StepModel
    prompt_tok: float
    output_tok: float
    concurrency: int
    is_held_out: bool


def is_held_out(group: tuple[str, str, str]) -> bool:
    return int(hashlib.sha256("|".join(group).encode()).hexdigest(), 16) % 100 < HELD_OUT_PERCENT


def starts(table: dict[str, str], name: str) -> str | None:
    return next((value for key, value in table.items() if name.startswith(key)), None)


def number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def kind_of(metric: str) -> str | None:
    for names, kind in ((DECODE, "decode"), (WHOLE, "whole"), (TPOT, "tpot"), (TTFT, "ttft"), (SERVER, "server")):
        if metric in names:
            return kind
    return "prefill" if metric == "prefill_tok_s" else None


def resolve(raw: dict[str, str], names: dict[str, Any], catalog: Catalog) -> Row | str:
    """Return a row ready to predict, or why it is left out."""
    kind = kind_of(raw["metric"])
    if kind is None:
        return f"metric {raw['metric']}"
    gpu_id = names["accelerators"].get(raw["accelerator"])
    if gpu_id is None:
        return f"accelerator {raw['accelerator']}"
    llm_id = names["models"].get(raw["model"])
    if llm_id is None:
        return f"model {raw['model']}"
    engine = starts(names["engines"], raw["engine"].lower())
    if engine is None:
        return f"engine {raw['engine']}"
    if "SPECULATIVE" in raw["note"] or "speculative" in raw["note"] or "MTP" in raw["note"]:
        return "speculative decoding"
    if "PREFIX CACHE" in raw["note"]:
        return "prefix cache"
    if "disagg" in raw["note"] or ("attention_dp=" in raw["note"] and "attention_dp=1" not in raw["note"]):
        return "disaggregated or data-parallel attention"
    fmt = starts(names["weight_formats"], raw["weight_format"].upper())
    if raw["weight_format"].startswith("BF16 (native") and llm_id in names["native_fp8"]:
        fmt = "fp8"
    if fmt in ("nvfp4", "mxfp4") and llm_id in names["fp4_is_mxfp4"]:
        fmt = "mxfp4"
    if fmt is None or fmt not in catalog.weight_formats:
        return f"format {raw['weight_format']}"
    concurrency = number(raw["concurrency_or_batch"] or "1")
    if concurrency is None:
        return "not a steady concurrency"
    prompt, output = number(raw["input_tokens"] or "0"), number(raw["output_tokens"] or "0")
    value = number(raw["value"])
    if prompt is None or output is None or not value:
        return "lengths or value not stated"
    if (kind in ("whole", "tpot", "server") and output < 2) or (kind in ("ttft", "prefill") and prompt < 1):
        return "lengths or value not stated"
    if "InferenceX" in raw["note"] or "InferenceMAX" in raw["note"]:
        prompt, output = 0.9 * prompt, 0.9 * output
    gpu, llm, weights = catalog.gpus[gpu_id], catalog.llm(llm_id), catalog.weight_formats[fmt]
    count = int(number(raw["n_accel"] or "1") or 1)
    tp, pp = int(number(raw["tp"] or "0") or 0), int(number(raw["pp"] or "0") or 0)
    if engine == "llama_cpp":
        tp, pp = 1, count
    elif not tp:
        tp, pp = (count, 1)
    pp = max(pp, 1)
    replicas = max(count // (tp * pp), 1)
    if replicas > 1 and kind in ("tpot", "ttft", "server"):
        return "several replicas in one figure"
    kv = 1.0 if raw["kv_format"].startswith("fp8") else 2.0
    work = work_of(llm, dict(weights.bits_per_weight), kv)
    _, peak = peak_flop_per_s(gpu, weights.compute_dtype)
    link = link_between(catalog.links, gpu, tp)
    start = Efficiency(0.6, 0.4, 0.4, 0.0, 20e-6)
    chunk = 512.0 if engine == "llama_cpp" else 8192.0
    step = step_model(work, gpu.memory_bandwidth_gb_per_s * 1e9, peak, EfficiencyBand(start, start, start), tp, pp, link, chunk_tok=chunk)
    group = (raw["source_url_or_repo_path"].split(":")[0].split("@")[0], raw["accelerator"], raw["model"])
    cell = (engine, gpu.family, format_class(weights))
    return Row(
        raw["id"], group, cell, raw["metric"], kind, value, replace(step, low=None, high=None), prompt, output,
        int(concurrency), is_held_out(group),
    )


def predict(row: Row, e: Efficiency) -> float:
    overhead_s = e.step_overhead_s * row.step.pp + e.layer_overhead_s * row.step.prefill_work.layer_count
    step = replace(row.step, efficiency=e, overhead_s=overhead_s)
    p, o, n = row.prompt_tok, row.output_tok, row.concurrency
    if row.kind == "decode":
        return n / step.decode_step_s(n, p + o / 2)
    if row.kind == "prefill":
        return p / step.prefill_s(p)
    if row.kind == "whole":
        seconds = step.prefill_s(max(p, 1.0)) + (o - 1) * step.decode_step_s(n, p + o / 2)
        return n * (o + (p if row.metric.startswith("total") else 0.0)) / seconds
    mix = RequestMix(max(p, 1.0), max(p, 1.0), max(o, 1.0), max(o, 1.0))
    seen = latency_at_concurrency(step, mix, n, 1e12, 4096)
    if row.kind == "tpot":
        return seen.tpot_p50_s * 1e3
    if row.kind == "ttft":
        return seen.ttft_p50_s * 1e3
    return seen.req_per_s * (o + (p if row.metric == "server_total_tok_s" else 0.0))


def constants(x: np.ndarray, has_ttft: bool) -> Efficiency:
    mbu, mfu, prefill = (1.0 / (1.0 + math.exp(-v)) for v in x[:3])
    return Efficiency(MAX_MBU_FRAC * mbu, mfu, prefill, 0.0, math.exp(x[3]) * 1e-6, math.exp(x[4]) * 1e-3 if has_ttft else 0.0)


START = np.array([0.6, -0.4, 0.0, 3.5, 3.5])
PULL = 0.01


def fit(rows: list[Row], centre: np.ndarray = START, pull: float = 0.001) -> tuple[Efficiency, np.ndarray]:
    """Return the constants with the least absolute log error, pulled towards `centre`: the engine's own over all GPUs."""
    rows = sorted(rows, key=lambda r: hashlib.sha256(r.id.encode()).hexdigest())[:MAX_FIT_ROWS]
    has_ttft = any(r.kind == "ttft" for r in rows)
    weight = sum(WEIGHT[r.kind] for r in rows)

    def loss(x: np.ndarray, of: list[Row] = rows) -> float:
        e = constants(x, has_ttft)
        total = sum(WEIGHT[r.kind] * min(abs(math.log(predict(r, e) / r.value)), 2.0) for r in of)
        return total / weight + pull * float(np.sum((x - centre) ** 2))

    few = rows[:40]
    grid = [centre] + [np.array([a, -0.4, c, d, 3.5]) for a in (-0.8, 0.4, 1.6) for c in (-1.5, 0.0) for d in (1.0, 3.0, 5.0)]
    start = min(grid, key=lambda x: loss(x, few))
    simplex = np.vstack([start, start + 0.7 * np.eye(5)])
    options = {"maxiter": 240, "xatol": 0.02, "fatol": 2e-4, "initial_simplex": simplex}
    best = minimize(loss, start, method="Nelder-Mead", options=options)
    return constants(best.x, has_ttft), best.x


def errors(rows: list[Row], picked: dict[tuple[str, str, str], Efficiency]) -> list[tuple[Row, float]]:
    return [(r, predict(r, picked[r.cell]) / r.value - 1.0) for r in rows]


def table(title: str, scored: list[tuple[Row, float]]) -> list[str]:
    lines = [f"| {title} | rows | median abs. error | p90 | bias (median) |", "|---|---:|---:|---:|---:|"]
    by: dict[str, list[float]] = defaultdict(list)
    for row, error in scored:
        by[row.kind].append(error)
    for kind, values in sorted(by.items()):
        absolute = sorted(map(abs, values))
        p90 = absolute[min(int(0.9 * len(absolute)), len(absolute) - 1)]
        lines.append(f"| {kind} | {len(values)} | {statistics.median(absolute):.1%} | {p90:.0%} | {statistics.median(values):+.1%} |")
    return lines


def quantile(values: list[float], q: float) -> float:
    return float(np.quantile(np.asarray(values), q))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--write", action="store_true", help="rewrite hardware/efficiency/steps.yaml")
    args = parser.parse_args()
    names = yaml.safe_load((Path(__file__).parents[1] / "hardware" / "measured_names.yaml").read_text())
    catalog = load_catalog()
    rows: list[Row] = []
    skipped: Counter[str] = Counter()
    for name in FILES:
        with (args.folder / f"{name}.csv").open(newline="") as stream:
            for raw in csv.DictReader(stream):
                found = resolve(raw, names, catalog)
                if isinstance(found, str):
                    skipped[found] += 1
                else:
                    rows.append(found)
    cells: dict[tuple[str, str, str], list[Row]] = defaultdict(list)
    for row in rows:
        if not row.is_held_out:
            cells[row.cell].append(row)
    picked: dict[tuple[str, str, str], Efficiency] = {}
    written: list[dict[str, Any]] = []
    centres: dict[str, np.ndarray] = {}
    for cell, own in sorted(cells.items()):
        if len(own) < MIN_ROWS:
            skipped[f"fewer than {MIN_ROWS} rows for {' '.join(cell)}"] += len(own)
            continue
        if cell[0] not in centres:
            _, centres[cell[0]] = fit([r for other, rs in cells.items() if other[0] == cell[0] for r in rs])
        e, _ = fit(own, centres[cell[0]], PULL)
        picked[cell] = e
        scored = errors(own, picked)
        written += yaml_rows(cell, e, scored)
        print(f"{cell} n={len(own)} mbu={e.mbu_frac:.3f} mfu={e.mfu_frac:.3f}/{e.prefill_mfu_frac:.3f} "
              f"req={e.request_overhead_s * 1e3:.0f}ms layer={e.layer_overhead_s * 1e6:.1f}us "
              f"err={statistics.median(abs(x) for _, x in scored):.3f}", file=sys.stderr, flush=True)
    fitted = [r for r in rows if not r.is_held_out and r.cell in picked]
    held = [r for r in rows if r.is_held_out and r.cell in picked]
    far = [r for r in rows if r.is_held_out and r.cell not in picked]
    print(f"rows read {len(rows) + sum(skipped.values())}, used {len(fitted)}, held out {len(held)} in "
          f"{len({r.group for r in held})} of {len({r.group for r in held + fitted})} groups, held out without a cell {len(far)}\n")
    print("\n".join(table("in sample", errors(fitted, picked))), "\n")
    print("\n".join(table("held out", errors(held, picked))), "\n")
    if args.write:
        path = Path(__file__).parents[1] / "hardware" / "efficiency" / "steps.yaml"
        head = (
            "# Fitted by benchmarks/fit_efficiency.py on published runs: do not edit by hand.\n"
            "# Fields: planner/schema/efficiency.py, EfficiencyRow.\n"
        )
        path.write_text(head + yaml.safe_dump({"steps": written}, sort_keys=False, width=140, allow_unicode=True))
        from planner.schema.efficiency import EfficiencyRow

        loaded = [EfficiencyRow.model_validate(r) for r in written]
        for cell in picked:
            assert choose_efficiency(loaded, cell[0], cell[1], cell[2]).steps_away == 0  # type: ignore[arg-type]
    for reason, count in skipped.most_common():
        print(f"skipped {count:5d}  {reason}")


def yaml_rows(cell: tuple[str, str, str], e: Efficiency, scored: list[tuple[Row, float]]) -> list[dict[str, Any]]:
    engine, family, cls = cell
    out = []
    for phase, kinds in (("decode", ("decode", "whole", "tpot", "server")), ("prefill", ("prefill", "ttft"))):
        mine = [(r, x) for r, x in scored if r.kind in kinds]
        used = mine or scored
        # measured over predicted speed: times are inverted, so that above 1 is always faster than predicted
        speed = [(1 + x) if r.kind in ("tpot", "ttft") else 1 / max(1 + x, 1e-3) for r, x in used]
        low, high = min(quantile(speed, 0.1), 0.95), max(quantile(speed, 0.9), 1.05)
        groups = {r.group for r, _ in used}

        def band(v: float, cap: float, low: float = low, high: float = high) -> dict[str, float]:
            return {"low": round(v * max(low, 0.2), 4), "typical": round(v, 4), "high": round(min(max(v * high, v), cap), 4)}

        row: dict[str, Any] = {"id": f"{engine}.{family}.{cls}.{phase}", "engine": engine, "gpu_family": family, "phase": phase,
                               "format_class": cls}
        if phase == "decode":
            row["mbu_frac"] = band(e.mbu_frac, MAX_MBU_FRAC)
            row["layer_overhead_us"] = round(e.layer_overhead_s * 1e6, 2)
        else:
            row["request_overhead_ms"] = round(e.request_overhead_s * 1e3, 2)
        row["mfu_frac"] = band(e.mfu_frac if phase == "decode" else e.prefill_mfu_frac, 1.0)
        row |= { "kind": "measured" if mine else "assumed",
            "row_count": len(mine), "group_count": len({r.group for r, _ in mine}),
            "spread_frac": round(statistics.median(abs(x) for _, x in used), 4),
            "origin": sorted({g[0].split("@")[0] for g in groups})[:6],
            "sources": {"default": {"kind": "derived", "retrieved_on": "2026-11-30",
                                    "note": "least absolute log error over published runs by benchmarks/fit_efficiency.py; "
                                            "band: 10th to 90th percentile of measured over predicted speed"
                                    + ("" if mine else "; no run of this phase, the constant is that of the other")}},
        }
        out.append(row)
    return out


if __name__ == "__main__":
    main()
