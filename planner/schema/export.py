"""The published JSON Schema of our files, with the docstrings of their fields as descriptions."""

from __future__ import annotations

import ast
import inspect
import json
from functools import cache
from importlib import import_module
from typing import Any

from pydantic import BaseModel

SCHEMAS: dict[str, tuple[str, str, str]] = {
    "workload": ("planner.schema.workload", "WorkloadSpec", "The workload file of planner: what to serve, where it may run, and by when"),
    "plan": ("planner.schema.plan", "Plan", "The plan file of planner: what to buy, rent and call, its costs, and every figure's source"),
}
"""Name for `planner schema --for` → module, model and title."""

FROM_DEFAULTS = frozenset({"llm", "privacy", "weights", "kv_cache"})
"""Keys of a workload that `plan.defaults` may give instead, so that an editor must not ask for them."""


@cache
def _docs_of_module(module: str) -> dict[str, dict[str, str]]:
    tree = ast.parse(inspect.getsource(import_module(module)))
    found: dict[str, dict[str, str]] = {}
    for node in tree.body:
        if not isinstance(node, ast.ClassDef):
            continue
        fields = found.setdefault(node.name, {})
        for item, after in zip(node.body, node.body[1:], strict=False):
            if (
                isinstance(item, ast.AnnAssign)
                and isinstance(item.target, ast.Name)
                and isinstance(after, ast.Expr)
                and isinstance(after.value, ast.Constant)
                and isinstance(after.value.value, str)
            ):
                fields[item.target.id] = inspect.cleandoc(after.value.value)
    return found


def field_docs(model: type[BaseModel]) -> dict[str, str]:
    """Return each field's docstring (the string below it in the class), those of base classes included."""
    docs: dict[str, str] = {}
    for part in reversed(model.__mro__):
        if part.__module__.startswith("planner."):
            docs.update(_docs_of_module(part.__module__).get(part.__name__, {}))
    docs.update({name: info.description for name, info in model.model_fields.items() if info.description})
    return docs


def json_schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of one of our files; `name` is a key of `SCHEMAS`."""
    module, model_name, title = SCHEMAS[name]
    model: type[BaseModel] = getattr(import_module(module), model_name)
    schema = model.model_json_schema(mode="validation")
    models = {m.__name__: m for m in vars(import_module(module)).values() if isinstance(m, type) and issubclass(m, BaseModel)}
    for title_of, part in [(model_name, schema), *schema.get("$defs", {}).items()]:
        if title_of in models:
            docs = field_docs(models[title_of])
            for field, body in part.get("properties", {}).items():
                if field in docs:
                    body["description"] = docs[field]
    _drop_titles(schema)
    if name == "workload":
        _as_written(schema)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **schema}


def json_schema_text(name: str) -> str:
    """Return the JSON Schema as text, two spaces a level, ending in a newline."""
    return json.dumps(json_schema(name), indent=2, ensure_ascii=False) + "\n"


def _drop_titles(part: Any) -> None:
    if isinstance(part, dict):
        if isinstance(part.get("title"), str):
            del part["title"]
        for key, value in part.items():
            if key == "properties":
                for body in value.values():
                    _drop_titles(body)
            else:
                _drop_titles(value)
    elif isinstance(part, list):
        for item in part:
            _drop_titles(item)


def _as_written(schema: dict[str, Any]) -> None:
    """Describe the file before `plan.defaults` is laid under it: defaulted keys are optional, a start month may be a month."""
    for name in ("Serving", "Batch", "Finetune"):
        part = schema["$defs"][name]
        part["required"] = [key for key in part["required"] if key not in FROM_DEFAULTS]
        number = part["properties"]["start_month"]
        bounds = {key: number.pop(key) for key in ("type", "minimum", "maximum") if key in number}
        number["anyOf"] = [bounds, {"type": "string", "pattern": "^[0-9]{4}-(0[1-9]|1[0-2])$"}]
    schema["$defs"]["Privacy"].pop("required", None)
    by_name = next(iter(schema["properties"]["workloads"]["patternProperties"].items()))
    choices = by_name[1]["oneOf"]
    rule: dict[str, Any] = next(c for c in choices if c["$ref"].endswith("/Serving"))
    for choice in choices:
        kind = schema["$defs"][choice["$ref"].rsplit("/", 1)[-1]]["properties"]["kind"]["const"]
        if kind != "serving":
            rule = {"if": {"properties": {"kind": {"const": kind}}, "required": ["kind"]}, "then": choice, "else": rule}
    schema["properties"]["workloads"]["patternProperties"] = {by_name[0]: rule}
    _close_patterns(schema)


def _close_patterns(part: Any) -> None:
    """Refuse keys that no pattern matches: pydantic leaves them open."""
    if isinstance(part, dict):
        if "patternProperties" in part:
            part.setdefault("additionalProperties", False)
        for value in part.values():
            _close_patterns(value)
    elif isinstance(part, list):
        for item in part:
            _close_patterns(item)
