"""What `vllm bench`, GuideLLM, AIPerf and GenAI-Perf write, read as load tests: lengths, load, latencies and throughput.

Each tool's words for one thing: the time between tokens is `tpot` of vllm bench and SGLang's bench_serving, `inter_token_latency` of
GuideLLM, AIPerf and GenAI-Perf (a request's time after its first token, over its tokens but one). GuideLLM's `time_per_output_token`
holds the wait for the first token and is not read. Sources, all read on 2026-12-01: github:vllm-project/vllm vllm/benchmarks/serve.py,
latency.py and throughput.py; github:vllm-project/guidellm src/guidellm/benchmark/schemas; github:ai-dynamo/aiperf
docs/tutorials/working-with-profile-exports.md; github:triton-inference-server/perf_analyzer genai_perf/export_data/json_exporter.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from planner.errors import Fault, InputError
from planner.readers.bench_file import MOST_DOCUMENTS, count_at, found_below, number_at, read_documents, text_at
from planner.schema.measured import BenchTest

MS_PER_UNIT = {"ms": 1.0, "s": 1e3, "sec": 1e3, "seconds": 1e3, "us": 1e-3, "ns": 1e-6, "milliseconds": 1.0}
KNOWN = "vllm bench serve, latency or throughput, SGLang bench_serving, GuideLLM, AIPerf, GenAI-Perf"
KEEPS_UP_FRAC = 0.95
"""A server that answers less of the rate than this is held by the limit on its clients, not by the rate."""


def read_bench_json(path: Path) -> list[BenchTest]:
    """Return the load tests of a JSON file.

    Raises `InputError` with every fault: what `read_documents` refuses, a document of no known tool, a test without any figure.
    """
    file = str(path)
    faults: list[Fault] = []
    found: list[BenchTest] = []
    documents = read_documents(path)
    for index, data in enumerate(documents):
        place = f"document {index + 1}" if len(documents) > 1 else ""
        tests = list(_tests(file, place, data, faults))
        for test in tests:
            if not test.values and test.batch_s is None:
                what = f"{test.tool}: no latency and no throughput stands here"
                faults.append(Fault(file, None, test.place, what, "give a test that ended, with at least one answered request"))
        found += tests
    if faults:
        raise InputError(faults)
    return found


def _tests(file: str, place: str, data: Mapping[str, Any], faults: list[Fault]) -> Iterator[BenchTest]:
    if isinstance(data.get("benchmarks"), list) and len(data["benchmarks"]) > MOST_DOCUMENTS:
        faults.append(Fault(file, None, place or "benchmarks", f"more than {MOST_DOCUMENTS:,} tests", "split the file"))
    elif isinstance(data.get("benchmarks"), list):
        for index, item in enumerate(data["benchmarks"]):
            at = " ".join(part for part in (place, f"benchmarks[{index}]") if part)
            if isinstance(item, Mapping) and isinstance(item.get("metrics"), Mapping):
                yield _guidellm(file, at, item, data)
            else:
                faults.append(Fault(file, None, at, "has no 'metrics'", "write the report with guidellm 0.2 or later"))
        if not data["benchmarks"]:
            faults.append(Fault(file, None, place or "benchmarks", "holds no benchmark", "give a run that ended"))
    elif "avg_latency" in data and "latencies" in data:
        yield _vllm_latency(file, place, data)
    elif "elapsed_time" in data and "tokens_per_second" in data:
        yield _vllm_throughput(file, place, data)
    elif isinstance(data.get("request_throughput"), Mapping) or isinstance(data.get("request_latency"), Mapping):
        yield _aiperf(file, place, data, faults)
    elif "output_throughput" in data or "mean_ttft_ms" in data:
        yield _vllm_serve(file, place, data)
    else:
        keys = ", ".join(sorted(map(str, data))[:6])
        faults.append(Fault(file, None, place, f"is no known tool's result (keys: {keys})", f"known: {KNOWN}; or write a CSV"))


def _load(clients: float | None, rate: float | None, answered_per_s: float | None, requests: int | None, cv: float) -> str:
    """Return the load in the words of a CSV file; "" where it is not told."""
    if rate and not (clients and answered_per_s is not None and answered_per_s < KEEPS_UP_FRAC * rate):
        return f"{rate:g} requests/s (cv {cv:.3g})"
    if clients and clients >= 0.5 and not (requests and requests <= clients):
        return f"{max(round(clients), 1)}"
    return f"all {requests} requests at once" if requests else ""


def _latencies(data: Mapping[str, Any], name: str, metric: str) -> Iterator[tuple[str, float, str]]:
    for word, ours in (("mean", "mean"), ("median", "p50"), ("p99", "p99")):
        value = number_at(data, f"{word}_{name}_ms")
        if value:
            yield f"{metric}_{ours}_ms", value, "ms"


def _vllm_serve(file: str, place: str, data: Mapping[str, Any]) -> BenchTest:
    """`vllm bench serve --save-result`, its older scripts, and SGLang's bench_serving, which keeps the same keys."""
    completed, sent = count_at(data, "completed"), count_at(data, "num_prompts")
    values = [*_latencies(data, "ttft", "ttft"), *_latencies(data, "tpot", "tpot")]
    if not any(metric.startswith("tpot") for metric, _, _ in values):
        mean = number_at(data, "mean_itl_ms")
        values += [("tpot_mean_ms", mean, "ms")] if mean else []
    if not values:
        values += [*_latencies(data, "e2el", "e2e"), *_latencies(data, "e2e_latency", "e2e")]
    rate = number_at(data, "output_throughput")
    total = number_at(data, "total_token_throughput")
    values += [("server_output_tok_s", rate, "tok/s")] if rate else [("server_total_tok_s", total, "tok/s")] if total else []

    def each(key: str) -> float | None:
        tokens = number_at(data, key)
        return tokens / completed if tokens and completed else None

    asked = number_at(data, "request_rate")
    burstiness = number_at(data, "burstiness") or 1.0
    cv = burstiness**-0.5 if burstiness > 0 else 1.0
    answered_per_s = number_at(data, "request_throughput")
    load = _load(number_at(data, "max_concurrency"), asked if asked and asked > 0 else None, answered_per_s, sent or completed, cv)
    drafts = any(key.startswith("spec_decode") for key in data) or (number_at(data, "accept_length") or 1.0) > 1.0
    return BenchTest(
        file=file, place=place, tool="vllm bench serve", model=text_at(data, "model_id") or text_at(data, "model"),
        input_tok=each("total_input_tokens"), output_tok=each("total_output_tokens"), load=load, values=tuple(values),
        request_count=sent or completed, failed_count=max((sent or 0) - (completed or 0), 0) if sent and completed is not None else 0,
        note="speculative decoding" if drafts else "",
    )


def _vllm_latency(file: str, place: str, data: Mapping[str, Any]) -> BenchTest:
    return BenchTest(file, place, "vllm bench latency", "", None, None, "", (), batch_s=number_at(data, "avg_latency"))


def _vllm_throughput(file: str, place: str, data: Mapping[str, Any]) -> BenchTest:
    requests, tokens, rate = count_at(data, "num_requests"), number_at(data, "total_num_tokens"), number_at(data, "tokens_per_second")
    return BenchTest(
        file, place, "vllm bench throughput", "", None, None, f"all {requests} requests at once" if requests else "",
        (("server_total_tok_s", rate, "tok/s"),) if rate else (), request_count=requests,
        total_tok_per_request=tokens / requests if tokens and requests else None,
    )


def _guidellm(file: str, place: str, item: Mapping[str, Any], report: Mapping[str, Any]) -> BenchTest:
    """One benchmark of a GuideLLM report (0.2 to 0.6: the strategy stands under `config` or under `args`)."""
    metrics = item["metrics"]

    def answered(name: str, *keys: str) -> float | None:
        return number_at(metrics, name, "successful", *keys)

    values: list[tuple[str, float, str]] = []
    for name, ours in (("time_to_first_token_ms", "ttft"), ("inter_token_latency_ms", "tpot")):
        for statistic, keys in (("mean", ("mean",)), ("p50", ("median",)), ("p99", ("percentiles", "p99"))):
            value = answered(name, *keys)
            values += [(f"{ours}_{statistic}_ms", value, "ms")] if value else []
    if not values:
        for statistic, keys in (("mean", ("mean",)), ("p50", ("median",)), ("p99", ("percentiles", "p99"))):
            value = answered("request_latency", *keys)
            values += [(f"e2e_{statistic}_ms", value * 1e3, "ms")] if value else []
    rate = answered("output_tokens_per_second", "mean")
    values += [("server_output_tok_s", rate, "tok/s")] if rate else []
    strategy: Any = next((s for part in ("config", "args") for s in found_below(item.get(part), "strategy") if isinstance(s, Mapping)), {})
    kind = text_at(strategy, "type_")
    limit = number_at(strategy, "max_concurrency") if kind != "throughput" else None
    clients = number_at(strategy, "streams") or limit or answered("request_concurrency", "mean")
    asked = number_at(strategy, "rate") if kind in ("constant", "poisson", "async") else None
    totals = {word: count_at(metrics, "request_totals", word) or 0 for word in ("successful", "errored")}
    return BenchTest(
        file=file, place=place, tool="GuideLLM", model=_model_below(item, report),
        input_tok=answered("prompt_token_count", "mean"), output_tok=answered("output_token_count", "mean"),
        load=_load(1.0 if kind == "synchronous" else clients, asked, None, totals["successful"] or None, 1.0 if kind == "poisson" else 0.0),
        values=tuple(values), request_count=sum(totals.values()) or None, failed_count=totals["errored"],
    )


def _model_below(*parts: Mapping[str, Any]) -> str:
    for part in parts:
        for key in ("backend_model", "model"):
            for found in found_below({k: v for k, v in part.items() if k not in ("requests", "metrics", "benchmarks")}, key):
                if isinstance(found, str) and found:
                    return found[:300]
    return ""


def _aiperf(file: str, place: str, data: Mapping[str, Any], faults: list[Fault]) -> BenchTest:
    """AIPerf's `profile_export_aiperf.json` and GenAI-Perf's `profile_export_genai_perf.json`: {unit, avg, p50, p99} a metric."""
    values: list[tuple[str, float, str]] = []
    for name, ours in (("time_to_first_token", "ttft"), ("inter_token_latency", "tpot"), ("request_latency", "e2e")):
        entry = data.get(name)
        if not isinstance(entry, Mapping) or (ours == "e2e" and values):
            continue
        unit = text_at(entry, "unit") or "ms"
        if unit.lower() not in MS_PER_UNIT:
            faults.append(Fault(file, None, f"{name}.unit", f"unit '{unit[:20]}' is not known", f"one of {', '.join(MS_PER_UNIT)}"))
            continue
        for statistic, key in (("mean", "avg"), ("p50", "p50"), ("p99", "p99")):
            value = number_at(entry, key)
            values += [(f"{ours}_{statistic}_ms", value * MS_PER_UNIT[unit.lower()], "ms")] if value else []
    rate = number_at(data, "output_token_throughput", "avg")
    values += [("server_output_tok_s", rate, "tok/s")] if rate else []
    config = data.get("input_config")

    def asked(key: str) -> float | None:
        plain = (value[0] if isinstance(value, list) and len(value) == 1 else value for value in found_below(config, key))
        return next((value for found in plain if (value := number_at({key: found}, key))), None)

    answered, failed = count_at(data, "request_count", "avg"), count_at(data, "error_request_count", "avg") or 0
    requests = (answered or 0) + failed or None
    models = next((text_at({"m": found}, "m") for key in ("model_names", "model") for found in found_below(config, key) if found), "")
    pattern = next((found for found in found_below(config, "arrival_pattern") if isinstance(found, str)), "poisson")
    output = number_at(data, "output_sequence_length", "avg") or number_at(data, "output_token_count", "avg")
    clients = asked("concurrency") or number_at(data, "effective_concurrency", "avg")
    answered_per_s, cv = number_at(data, "request_throughput", "avg"), 0.0 if pattern == "constant" else 1.0
    tool = "AIPerf" if "aiperf_version" in data or "aiperf" in Path(file).name else "GenAI-Perf"
    return BenchTest(
        file=file, place=place, tool=tool, model=models,
        input_tok=number_at(data, "input_sequence_length", "avg"), output_tok=output,
        load=_load(clients, asked("request_rate"), answered_per_s, requests, cv),
        values=tuple(values), request_count=requests, failed_count=failed,
    )
