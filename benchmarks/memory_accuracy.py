"""Print how near the memory figures come to what engines logged: room for the cache, bytes of a request, buffers, fits, peaks.

`python benchmarks/memory_accuracy.py [--kv CSV] [--fit CSV] [--peak CSV]`. Without arguments the logs re-entered in
`tests/data/memory_logs.yaml` are computed. A CSV of the public collections (columns case=… in params_note, accelerator,
n_accel, model, weight_format, input_tokens, output_tokens, metric, value) is computed row by row as well: cases of `--kv`
that are not computed are listed with the reason, and its printed rooms must be those that were re-entered.
"""

from __future__ import annotations

import argparse
import csv
import re
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from planner.catalog import Catalog, load_catalog
from planner.physics import activations, device, memory
from planner.units import BYTES_PER_GIB, BYTES_PER_MIB

LOGS = Path(__file__).resolve().parent.parent / "tests" / "data" / "memory_logs.yaml"
FIT_ENGINE = "llama_cpp_b5900"
FIT_TOK = 1024
PEAK_PROMPT_TOK = (1, 6144, 14336, 30720)
PEAK_ANSWER_TOK = 2048
FIT_MODELS = (("llama_3_8b", "q4_k_m"), ("llama_3_8b", "fp16"), ("llama_3_70b", "q4_k_m"), ("llama_3_70b", "fp16"))
FIT_NAMES = {"Llama-3-8B": "llama_3_8b", "Llama-3-70B": "llama_3_70b", "GGUF Q4_K_M": "q4_k_m", "GGUF F16": "fp16"}
PEAK_FORMATS = {
    "BF16": "bf16", "GPTQ-Int8": "int8", "GPTQ-Int4": "gptq_int4", "AWQ": "awq_int4", "AWQ-INT4": "awq_int4", "FP8": "fp8_block",
}
ACCELERATORS = {
    "Apple M1 7-core GPU 8GB": "apple_m1_8gb", "RTX 3080 10GB": "rtx_3080_10gb", "RTX 4070 Ti 12GB": "rtx_4070_ti_12gb",
    "RTX 4000 Ada 20GB": "rtx_4000_ada_20gb", "RTX 3090 24GB": "rtx_3090_24gb", "RTX 4090 24GB": "rtx_4090_24gb",
    "RTX A6000 48GB": "rtx_a6000_48gb", "RTX 6000 Ada 48GB": "rtx_6000_ada_48gb", "A100 PCIe 80GB": "a100_pcie_80gb",
    "H100 PCIe 80GB": "h100_pcie_80gb", "Apple M1 Max 32-core GPU 64GB": "apple_m1_max_64gb",
    "Apple M2 Ultra 76-core GPU 192GB": "apple_m2_ultra_192gb",
}


@dataclass(frozen=True)
class Compared:
    """One figure computed and measured, in the unit of its table."""

    case: str
    group: str
    role: str
    computed: float
    measured: float
    remark: str = ""

    @property
    def error(self) -> float:
        """Computed less measured."""
        return self.computed - self.measured

    @property
    def error_frac(self) -> float:
        """Error over what was measured."""
        return self.error / self.measured


@cache
def logs() -> dict[str, Any]:
    """Return the re-entered logs."""
    found: dict[str, Any] = yaml.safe_load(LOGS.read_text(encoding="utf-8"))
    return found


def kv_room(catalog: Catalog, case: Mapping[str, Any]) -> Compared:
    """Return the room for the cache on the fullest GPU, GiB: usable − weights − activations − overhead, margin 0."""
    engine, gpu, tp, frac = catalog.engine(case["engine"]), catalog.gpu(case["gpu"]), case.get("tp", 1), case["memory_frac"]
    given = case["weights_gib"] * BYTES_PER_GIB * tp if "weights_gib" in case else None
    fp = memory.footprint(
        catalog.llm(case["llm"]), catalog.weight_format(case["weights"]), catalog.kv_format(case.get("kv", "fp16")), engine, given
    )
    act = activations.activation_bytes(
        fp.llm, engine, gpu, tp, case["context_tok"], max_batched_tok=case.get("max_batched_tok"),
        max_sequence_count=case.get("max_sequence_count"), memory_frac=frac,
    )
    weights = fp.weights_bytes_per_gpu(tp, 1)
    overhead = activations.overhead_bytes_per_gpu(engine, tp, gpu) + memory.padding_bytes(fp, gpu, tp, 1)
    usable = device.usable_bytes(gpu, frac, 0.0, device.taken_first(engine, weights, act, overhead))
    logged = case["room_gib"] if "room_gib" in case else case["pool_tok"] * sum(p.bytes_per_tok(tp) for p in fp.kv_parts) / BYTES_PER_GIB
    remark = "; ".join(filter(None, (case.get("cause", ""), f"not stated: {case['unknown']}" if "unknown" in case else "")))
    return Compared(case["case"], engine.engine, case["role"], (usable - weights - act - overhead) / BYTES_PER_GIB, logged, remark)


def kv_request(catalog: Catalog, case: Mapping[str, Any]) -> Compared:
    """Return the bytes of one request of `context_tok` tokens on one GPU, GiB."""
    engine = catalog.engine(case["engine"])
    fp = memory.footprint(catalog.llm(case["llm"]), catalog.weight_format("bf16"), catalog.kv_format(case["kv"]), engine)
    tp = case.get("tp", 1)
    found = fp.kv_bytes_per_sequence(case["context_tok"], tp)
    if case.get("without_state"):
        found -= fp.state_bytes_per_sequence / tp
    role = "not modelled" if "engine_reserves_more" in case else "held_out"
    remark = case.get("engine_reserves_more", "")
    return Compared(case["case"], engine.engine, role, found / BYTES_PER_GIB, case["request_gib"], remark)


def compute_buffer(catalog: Catalog, case: Mapping[str, Any]) -> Compared:
    """Return the compute buffer of one micro-batch, MiB."""
    engine, gpu = catalog.engine(case["engine"]), catalog.gpu("h100_sxm_80gb")
    found = activations.activation_bytes(catalog.llm(case["llm"]), engine, gpu, 1, case["context_tok"])
    return Compared(case["case"], "llama_cpp", "fit", found / BYTES_PER_MIB, case["buffer_mib"], case.get("note", ""))


def fits(catalog: Catalog, gpu: str, count: int, llm: str, weights: str, context_tok: int) -> bool:
    """Say whether llama.cpp of May 2024 holds a model on `count` cards split by layer, nothing kept free."""
    engine = catalog.engine(FIT_ENGINE)
    form = catalog.weight_format(weights)
    fp = memory.footprint(catalog.llm(llm), form, catalog.kv_format("fp16"), engine)
    answer = memory.fit_footprint(fp, catalog.gpu(gpu), 1, count, context_tok, 1, 1.0, 0.0)
    return isinstance(answer, memory.Fits)


def peak_gib(catalog: Catalog, llm: str, weights: str, prompt_tok: int, answer_tok: int = PEAK_ANSWER_TOK) -> float:
    """Return the peak of the tensor allocator of a Transformers run, GiB: reading the prompt or holding prompt and answer."""
    engine, gpu = catalog.engine("transformers"), catalog.gpu("a100_sxm_80gb")
    fp = memory.footprint(catalog.llm(llm), catalog.weight_format(weights), catalog.kv_format("fp16"), engine)
    reading = fp.kv_bytes_per_sequence(prompt_tok) + activations.activation_bytes(fp.llm, engine, gpu, 1, prompt_tok)
    return (fp.weights_bytes + max(reading, fp.kv_bytes_per_sequence(prompt_tok + answer_tok))) / BYTES_PER_GIB


def peaks(catalog: Catalog, role: str) -> list[Compared]:
    """Return the re-entered Transformers peaks of one role, GiB."""
    return [
        Compared(f"{llm} at {tok}", weights, role, peak_gib(catalog, llm, weights, tok), value)
        for llm, weights, *values in logs()["peaks"][role] for tok, value in zip(PEAK_PROMPT_TOK, values, strict=True)
    ]


def mlx_peak(catalog: Catalog, case: Mapping[str, Any]) -> Compared:
    """Return the peak of the MLX allocator while a prompt is read, GiB: weights, cache and the step's tensors."""
    engine, gpu = catalog.engine("mlx"), catalog.gpu("apple_m2_ultra_192gb")
    fp = memory.footprint(catalog.llm(case["llm"]), catalog.weight_format(case["weights"]), catalog.kv_format("fp16"), engine)
    step = activations.activation_bytes(fp.llm, engine, gpu, 1, case["context_tok"])
    found = fp.weights_bytes + fp.kv_bytes_per_sequence(case["context_tok"]) + step
    return Compared(case["case"], "mlx", "held_out", found / BYTES_PER_GIB, case["peak_gib"], case["note"])


def fit_verdicts(catalog: Catalog) -> list[tuple[str, bool, bool]]:
    """Return (case, computed, measured) of every re-entered run of llama.cpp."""
    rows = [
        (f"{count} x {gpu} {llm} {form}", fits(catalog, gpu, count, llm, form, FIT_TOK), bool(ran))
        for gpu, count, *verdicts in logs()["fits"]["rows"] for (llm, form), ran in zip(FIT_MODELS, verdicts, strict=True)
    ]
    for gpu, count, _ in logs()["fits"]["at_8192_tok"]:
        rows.append((f"{count} x {gpu} llama_3_8b q4_k_m at 8,192", fits(catalog, gpu, count, "llama_3_8b", "q4_k_m", 8192), False))
    return rows


def show(title: str, rows: list[Compared], unit: str, as_frac: bool = False) -> None:
    """Print the rows, worst first, then the median by role and by engine."""
    print(f"\n## {title}")
    for row in sorted(rows, key=lambda r: -abs(r.error_frac if as_frac else r.error)):
        error = f"{row.error_frac:+8.1%}" if as_frac else f"{row.error:+8.2f}"
        print(f"{row.case:24} {row.group:13} {row.role:13} {row.computed:9.2f} {row.measured:9.2f} {unit} {error}  {row.remark}")
    groups: dict[str, list[float]] = {}
    for row in rows:
        size = abs(row.error_frac if as_frac else row.error)
        for name in dict.fromkeys((f"role {row.role}", f"engine {row.group}", "all")):
            groups.setdefault(name, []).append(size)
    for name, sizes in groups.items():
        middle, worst = statistics.median(sizes), max(sizes)
        amount = f"{middle:.1%}, worst {worst:.1%}" if as_frac else f"{middle:.2f} {unit}, worst {worst:.2f}"
        print(f"   {name}: n = {len(sizes)}, median absolute error {amount}")


def show_fits(title: str, rows: Iterable[tuple[str, bool, bool]]) -> None:
    """Print right and wrong verdicts; a "fits" where it did not is named first."""
    found = list(rows)
    wrong = [row for row in found if row[1] != row[2]]
    false_fits = [case for case, computed, _ in wrong if computed]
    right = len(found) - len(wrong)
    print(f"\n## {title}\n   {right} of {len(found)} right ({right / len(found):.1%}), {len(false_fits)} false 'fits'")
    for case, computed, _ in wrong:
        print(f"   wrong: {case}: computed {'fits' if computed else 'does not fit'}")


def read(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def check_kv_csv(path: Path) -> None:
    """List the cases of a collection that are not computed, and figures that differ from those re-entered."""
    cases: dict[str, dict[str, str]] = {}
    for row in read(path):
        tag = re.search(r"case=(\w+)", row["params_note"])
        if tag:
            cases.setdefault(tag[1], {})[row["metric"]] = row["value"]
    known = {case["case"]: case for part in ("kv_room", "kv_request", "compute_buffer") for case in reversed(logs()[part])}
    print(f"\n## Cases of {path.name}: {len(cases)}, of which {len(set(cases) & set(known))} are computed")
    for name, metrics in cases.items():
        if name not in known:
            print(f"   {name}: {logs()['left_out'].get(name, 'NO REASON GIVEN')}")
        printed, entered = metrics.get("kv_available_gib_per_gpu"), known.get(name, {}).get("room_gib")
        if printed and entered is not None and abs(float(printed) - entered) > 0.005:
            print(f"   {name}: {printed} in the file, {entered} re-entered")


def fit_csv(catalog: Catalog, path: Path) -> Iterable[tuple[str, bool, bool]]:
    """Yield (case, computed, measured) of every row of a collection of fits."""
    for row in read(path):
        count, gpu = int(row["n_accel"]), ACCELERATORS[row["accelerator"]]
        asked = max(int(row["input_tokens"] or 0), int(row["output_tokens"] or 0))
        tok = asked if asked > FIT_TOK else FIT_TOK
        llm, form = FIT_NAMES[row["model"]], FIT_NAMES[row["weight_format"]]
        yield row["id"] + f" {count} x {gpu} {llm} {form}", fits(catalog, gpu, count, llm, form, tok), row["value"] == "1"


def peak_csv(catalog: Catalog, path: Path) -> Iterable[Compared]:
    """Yield the peaks of every row of a collection of Transformers runs, GiB."""
    for row in read(path):
        llm = row["model"].lower().replace("-instruct", "").replace("-", "_")
        measured = float(row["value"]) / (1.0 if row["metric"].endswith("_gb") else 1024.0)
        form, tok = row["weight_format"], int(row["input_tokens"])
        found = peak_gib(catalog, llm, PEAK_FORMATS[form], tok, int(row["output_tokens"]))
        yield Compared(f"{llm} {tok}", form, "qwen2.5" if llm.startswith("qwen2.5") else "qwen3", found, measured)


def main() -> None:
    """Print every table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    for name in ("kv", "fit", "peak"):
        parser.add_argument(f"--{name}", type=Path)
    args = parser.parse_args()
    catalog = load_catalog()
    show("Room for the KV cache", [kv_room(catalog, case) for case in logs()["kv_room"]], "GiB")
    show("Bytes of one request", [kv_request(catalog, case) for case in logs()["kv_request"]], "GiB", as_frac=True)
    show("Compute buffer of llama.cpp", [compute_buffer(catalog, case) for case in logs()["compute_buffer"]], "MiB", as_frac=True)
    show_fits("llama.cpp: fits or not", fit_verdicts(catalog))
    show("Transformers: peak", peaks(catalog, "fit") + peaks(catalog, "held_out"), "GiB", as_frac=True)
    show("MLX: peak", [mlx_peak(catalog, case) for case in logs()["mlx_peaks"]], "GiB", as_frac=True)
    if args.kv:
        check_kv_csv(args.kv)
    if args.fit:
        show_fits(f"Fits of {args.fit.name}", fit_csv(catalog, args.fit))
    if args.peak:
        show(f"Peaks of {args.peak.name}", list(peak_csv(catalog, args.peak)), "GiB", as_frac=True)


if __name__ == "__main__":
    main()
