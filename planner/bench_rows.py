"""From a benchmark tool's own JSON to rows like those of a CSV: what the file does not say is stated once, by options."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from planner.catalog import Catalog
from planner.errors import Fault, InputError, did_you_mean, gathered
from planner.measuring import measured_names
from planner.schema.measured import BenchTest, Deployment, MeasuredRow, ModelName

HUB_NAME = re.compile(r"^hf_repo: (\S+)$", re.MULTILINE)
COUNTED = re.compile(r"(\d{1,4})x(.+)")
NEEDED = {"gpu": "--gpu", "engine": "--engine", "weights": "--weights"}


def deployment_of(catalog: Catalog, options: Mapping[str, Any]) -> Deployment:
    """Return where benchmarks ran, as options say it: `gpu` may carry its count (`2xh100_sxm_80gb`) and be shortened (`h100_sxm`).

    Raises `InputError` with every unknown id and every impossible count.
    """
    faults: list[Fault] = []
    found = partial(gathered, faults)
    count, gpu = 1, None
    if options.get("gpu"):
        counted = COUNTED.fullmatch(options["gpu"].lower())
        count, name = (int(counted[1]), counted[2]) if counted else (1, options["gpu"].lower())
        gpu = found(_gpu, catalog, name)
        if count < 1:
            faults.append(Fault("", None, "--gpu", "no accelerator at all", "write 2xh100_sxm_80gb"))
    engine = found(catalog.engine, options["engine"]) if options.get("engine") else None
    weights = found(catalog.weight_format, options["weights"]) if options.get("weights") else None
    kv = found(catalog.kv_format, options["kv_cache"]) if options.get("kv_cache") else None
    if options.get("llm"):
        found(catalog.llm, options["llm"])
    tp, pp = options.get("tp"), options.get("pp")
    if gpu is not None and count % ((tp or 1) * (pp or 1)):
        faults.append(Fault("", None, "--tp", f"tp {tp or 1} x pp {pp or 1} does not divide {count} GPUs", "write --gpu with its count"))
    if faults:
        raise InputError(faults)
    return Deployment(
        llm=options.get("llm") or None, gpu=gpu.id if gpu else None, gpu_count=count, engine=engine.engine if engine else None,
        engine_version=options.get("engine_version") or "", weights=weights.id if weights else None, kv_cache=kv.id if kv else None,
        tp=tp, pp=pp, input_tok=options.get("input_tok"), output_tok=options.get("output_tok"), concurrency=options.get("concurrency"),
    )


def _gpu(catalog: Catalog, name: str) -> Any:
    """Return the accelerator of that id, or the only one whose id starts so."""
    if name in catalog.gpus:
        return catalog.gpus[name]
    starting = [gpu for key, gpu in catalog.gpus.items() if key.startswith(name)]
    if len(starting) == 1:
        return starting[0]
    cure = f"say which: {', '.join(gpu.id for gpu in starting[:8])}" if starting else did_you_mean(name, catalog.gpus)
    what = f"'{name}' stands for several" if starting else f"no '{name}' in hardware/gpus"
    raise InputError([Fault("", None, "--gpu", what, cure)])


def rows_of(catalog: Catalog, tests: Iterable[BenchTest], at: Deployment) -> list[MeasuredRow]:
    """Return a row for each figure of each test.

    Raises `InputError` once for all tests: options that nobody gave and no file states, with the files that want them.
    """
    faults: list[Fault] = []
    wanting: dict[str, list[str]] = {}
    rows: list[MeasuredRow] = []
    for number, test in enumerate(tests, 1):
        where = " ".join(part for part in (Path(test.file).name, test.place) if part)
        llm = at.llm or _llm(catalog, test.model)
        if llm is None:
            option = f"--llm (it says '{test.model[:60]}')" if test.model else "--llm"
            wanting.setdefault(option, []).append(where)
        for field, option in NEEDED.items():
            if getattr(at, field) is None:
                wanting.setdefault(option, []).append(where)
        filled = _filled(test, at, where, wanting)
        if llm is None or filled is None:
            continue
        load, input_tok, output_tok, values = filled
        note = test.note + (f" FAILED {test.failed_count} of {test.request_count}" if test.failed_count and test.request_count else "")
        for metric, value, unit in values:
            rows.append(MeasuredRow(
                id=f"{where.replace(' ', '.')}#{number}.{metric}", source=Path(test.file).name, engine=at.engine or "",
                engine_version=at.engine_version, model=llm, params_note=test.tool, weight_format=at.weights or "",
                kv_format=at.kv_cache or "", accelerator=at.gpu or "", gpu_count=at.gpu_count, tp=at.tp, pp=at.pp, ep=None,
                input_tok=input_tok, output_tok=output_tok, load=load, metric=metric, value=value, unit=unit, note=note.strip(),
                line=number, request_count=test.request_count,
            ))
    for option, places in sorted(wanting.items()):
        names = list(dict.fromkeys(places))
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        faults.append(Fault("", None, option.split(" ")[0], f"is missing: {', '.join(names[:3])}{more} does not say it"
                            + option[len(option.split(" ")[0]):], _cure(option)))
    if faults:
        raise InputError(faults)
    return rows


def _cure(option: str) -> str:
    return {
        "--gpu": "write e.g. --gpu 2xh100_sxm_80gb", "--engine": "write e.g. --engine vllm", "--weights": "write e.g. --weights fp8",
        "--input": "give the prompt tokens of a request", "--output": "give the output tokens of a request",
        "--concurrency": "give the clients or the batch",
    }.get(option, "write e.g. --llm llama_3.1_8b")


def _filled(
    test: BenchTest, at: Deployment, where: str, wanting: dict[str, list[str]]
) -> tuple[str, float, float, tuple[tuple[str, float, str], ...]] | None:
    """Return load, lengths and values with what options add; what is still missing is noted in `wanting`."""
    output = test.output_tok or at.output_tok
    input_tok = test.input_tok or at.input_tok
    if input_tok is None and test.total_tok_per_request is not None and output is not None:
        input_tok = max(test.total_tok_per_request - output, 1.0)
    load = test.load or (str(at.concurrency) if at.concurrency else "")
    for value, option in ((input_tok, "--input"), (output, "--output"), (load, "--concurrency")):
        if not value:
            wanting.setdefault(option, []).append(where)
    if not (input_tok and output and load):
        return None
    if test.batch_s is not None and at.concurrency:
        return load, input_tok, output, (("gen_tok_s_incl_prefill", at.concurrency * output / test.batch_s, "tok/s"),)
    return load, input_tok, output, test.values


def _llm(catalog: Catalog, name: str) -> str | None:
    """Return the id of a model by the name that a server goes by: as listed, without its owner, or a catalog id."""
    names = measured_names().models
    for spelled in (name, name.rsplit("/", 1)[-1], name.rsplit("/", 1)[-1].lower()):
        named = names.get(spelled)
        if named is not None:
            return named.llm if isinstance(named, ModelName) else named
        if spelled in catalog.model_files:
            return spelled
    return _by_hub_name(catalog).get(name.lower())


def _by_hub_name(catalog: Catalog) -> dict[str, str]:
    """Return the Hub name in a model's own file, lower case, and the model's id."""
    found: dict[str, str] = {}
    for key, path in catalog.model_files.items():
        named = HUB_NAME.search(path.read_text(encoding="utf-8"))
        if named:
            found.setdefault(named[1].lower(), key)
    return found
