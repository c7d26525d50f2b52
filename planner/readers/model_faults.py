"""What pydantic found, said plainly: one fault for each real mistake, at its line, with the accepted range and a cure."""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any, Protocol, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel, Tag, ValidationError
from pydantic.fields import FieldInfo

from planner.errors import Fault, did_you_mean, one_line
from planner.readers.yaml_nodes import Place
from planner.schema.export import field_docs

_MISMATCH = ("_type", "_parsing")
MAX_WRITTEN_OUT = 1e11


class Located(Protocol):
    """A parsed document that knows its lines (`yaml_file.Document`)."""

    data: Any
    file: str

    def line_of(self, place: Place) -> int | None: ...

    def plain_text(self, place: Place) -> str | None: ...


class _Found:
    """One pydantic error with its place in the document; labels of union branches are set apart."""

    def __init__(self, error: Mapping[str, Any], data: Any, model: Any, under: Place = ()) -> None:
        self.error = error
        self.kind: str = error["type"]
        self.branches: list[tuple[int, str]] = []
        self.is_written = True
        loc = error["loc"][:-1] if error["loc"] and error["loc"][-1] == "[key]" else error["loc"]
        place: list[str | int] = []
        types_here: list[Any] = [model]
        here = data
        for index, step in enumerate(loc):
            below = [found for annotation in types_here for found in _below(annotation, step)]
            names_a_key = index == len(loc) - 1 and self.kind in ("missing", "extra_forbidden")
            if _fits(here, step):
                here = here[step]
            elif below or names_a_key or not isinstance(step, str):
                self.is_written = False
                here = None
            else:
                self.branches.append((len(place), step))
                types_here = _branch(types_here, step)
                continue
            place.append(step)
            types_here = below
        if self.kind == "union_tag_invalid" and _fits(here, "kind"):
            place.append("kind")
        self.types = types_here
        self.place: Place = tuple(place)
        self.full_place: Place = (*under, *place)
        self.value = error["input"] if self.kind != "missing" else None

    def owners(self, model: Any) -> list[type[BaseModel]]:
        """Return the models that may hold the last key of this place."""
        return _models(_annotations_at(model, self, self.place[:-1]))


def _fits(here: Any, step: Any) -> bool:
    if isinstance(here, Mapping):
        return step in here
    return isinstance(here, list) and isinstance(step, int) and step < len(here)


def model_faults(model: Any, error: ValidationError, document: Located, under: Place = ()) -> list[Fault]:
    """Return one fault for each mistake that `error` holds about `document`; never a fault for each branch of a union.

    `under` is the place in the document that was validated (the whole of it, if empty).
    """
    data = document.data
    for step in under:
        data = data[step]
    found = [_Found(e, data, model, under) for e in error.errors(include_url=False)]
    written = [f for f in found if f.is_written or f.kind == "missing"]
    return [_fault(model, f, document) for f in _one_branch_each(written or found)]


def _one_branch_each(found: list[_Found]) -> list[_Found]:
    """Keep, where a union's branches all failed, the branch that the user most likely meant."""
    contests: dict[tuple[Place, tuple[tuple[int, str], ...]], dict[str, list[_Found]]] = {}
    for f in found:
        for nth, (depth, label) in enumerate(f.branches):
            contests.setdefault((f.place[:depth], tuple(f.branches[:nth])), {}).setdefault(label, []).append(f)
    lost: set[int] = set()
    for (at, _), groups in contests.items():
        winner = max(groups.values(), key=lambda group: _rank(group, len(at)))
        lost.update(id(f) for group in groups.values() if group is not winner for f in group)
    return [f for f in found if id(f) not in lost]


def _rank(group: list[_Found], depth: int) -> tuple[bool, int, int]:
    """Prefer the branch whose faults are not a plain mismatch of kind, lie deepest, and are few."""
    mismatch = all(f.kind.endswith(_MISMATCH) and len(f.place) == depth for f in group)
    return (not mismatch, max(len(f.place) for f in group), -len(group))


def _fault(model: Any, f: _Found, document: Located) -> Fault:
    what, cure = _words(model, f, document)
    return Fault(document.file, document.line_of(f.full_place), dotted(f.full_place), one_line(what, 300), one_line(cure, 300))


def dotted(place: Place) -> str:
    """Return a place as people write it.

    >>> dotted(("owned", 0, "node"))
    'owned[0].node'
    """
    text = ""
    for step in place:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def _words(model: Any, f: _Found, document: Located) -> tuple[str, str]:
    kind, ctx, value = f.kind, f.error.get("ctx", {}), f.value
    shown = show(value)
    typed = document.plain_text(f.full_place)
    if kind == "missing":
        return f"'{f.place[-1]}' is missing", f"add `{f.place[-1]}:`{_purpose(model, f)}"
    if kind == "extra_forbidden":
        known = sorted({name for owner in f.owners(model) for name in _names(owner)})
        return f"unknown key '{f.place[-1]}'", did_you_mean(str(f.place[-1]), known)
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        tags = re.findall(r"'([^']*)'", str(ctx.get("expected_tags", "")))
        return f"{ctx.get('tag', 'this')} is none of {', '.join(tags)}", did_you_mean(str(ctx.get("tag", "")), tags)
    if kind in ("literal_error", "enum"):
        known = re.findall(r"'([^']*)'", str(ctx.get("expected", ""))) or [str(ctx.get("expected", ""))]
        if isinstance(value, bool) and typed is not None:
            what = f"YAML reads {typed} as {show(value)}; one of {', '.join(known)} is due"
            return what, f"write it in quotes if the word is meant: '{typed}'"
        return f"{shown} is none of {', '.join(known)}", did_you_mean(str(value), known)
    if kind in ("greater_than", "greater_than_equal", "less_than", "less_than_equal", "finite_number"):
        accepted = _range(f)
        return f"{shown} is out of range", f"accepted: {accepted}" if accepted else "write a finite number"
    if kind in ("value_error", "assertion_error") or kind.startswith("planner"):
        text = str(ctx.get("error", "")) or str(f.error["msg"])
        what, _, cure = text.partition("; ")
        return what, cure
    return _mismatch(f, value, shown, typed, ctx)


def _mismatch(f: _Found, value: Any, shown: str, typed: str | None, ctx: Mapping[str, Any]) -> tuple[str, str]:
    kind = f.kind
    if kind.startswith(("float_", "int_", "decimal_", "number_")):
        if kind == "int_from_float":
            return f"{shown} is not a whole number", "write a whole number"
        accepted = _range(f)
        saying = f"YAML reads {typed} as {show(value)}" if isinstance(value, bool) and typed else shown
        return f"{saying} where a number is due", "write a plain number" + (f", accepted: {accepted}" if accepted else "")
    if kind.startswith("bool"):
        return f"{shown} where yes or no is due", "write true or false"
    if kind == "string_type" and isinstance(value, bool) and typed is not None:
        return f"YAML reads {typed} as {str(value).lower()}; text is due", f"write it in quotes: '{typed}'"
    if kind == "string_type":
        simple = typed is not None and value is not None
        return f"{shown} where text is due", f"write it in quotes: '{typed}'" if simple else "write text"
    if kind == "string_pattern_mismatch":
        if "a-z0-9_." in str(ctx.get("pattern", "")):
            tidy = re.sub(r"[^a-z0-9_.]+", "_", str(value).lower()).strip("_")
            return f"{shown} is not an id", "use lower-case letters, digits, _ and ." + (f": '{tidy}'" if tidy else "")
        return f"{shown} does not have the form that is due", f"it must match {ctx.get('pattern')}"
    if kind in ("string_too_short", "string_too_long"):
        bound = ctx.get("min_length", ctx.get("max_length"))
        side = "short: at least" if kind.endswith("short") else "long: at most"
        return f"this text is too {side} {bound} characters", "write it again"
    if kind in ("too_short", "too_long"):
        least = kind == "too_short"
        bound, got = ctx.get("min_length" if least else "max_length"), ctx.get("actual_length")
        return f"{got} entries where at {'least' if least else 'most'} {bound} are due", "add some" if least else "remove some"
    if kind.startswith("date"):
        return f"{shown} is not a date", "write year-month-day, for example 2026-11-30"
    if kind in ("list_type", "tuple_type", "set_type"):
        if isinstance(value, bool) and typed is not None:
            shown = f"YAML reads {typed} as {shown}"
        return f"{shown} where a list is due", "write [a, b], or one '- item' a line"
    if kind in ("model_type", "dict_type", "model_attributes_type", "mapping_type"):
        return f"{shown} where a mapping of keys is due", "write `key: value` lines below it" + _keys_hint(f)
    if kind == "none_required":
        return f"{shown} where nothing is due", "remove it"
    return str(f.error["msg"]).lower(), "correct the value"


def show(value: Any) -> str:
    """Return a value as a user would recognise it, cut to a few words."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f"the text '{one_line(value, 60)}'"
    if isinstance(value, (list, tuple)):
        return f"a list of {len(value)}"
    if isinstance(value, Mapping):
        return "a mapping"
    return f"{value:g}" if isinstance(value, float) else one_line(str(value), 60)


def _purpose(model: Any, f: _Found) -> str:
    for owner in f.owners(model):
        text = field_docs(owner).get(str(f.place[-1]))
        if text:
            return f" ({text.split('. ')[0].rstrip('.')})"
    return ""


def _keys_hint(f: _Found) -> str:
    names = [n for m in _models(f.types) for n in _names(m)]
    return f" (keys: {', '.join(dict.fromkeys(names))})" if names else ""


def _names(model: type[BaseModel]) -> list[str]:
    return [info.alias or name for name, info in model.model_fields.items()]


def _range(f: _Found) -> str:
    low = high = ""
    for part in _bounds(f.types):
        if isinstance(part, Gt):
            low = f"more than {_number(part.gt)}"
        elif isinstance(part, Ge):
            low = f"at least {_number(part.ge)}"
        elif isinstance(part, Lt):
            high = f"less than {_number(part.lt)}"
        elif isinstance(part, Le):
            high = f"at most {_number(part.le)}"
    return " and ".join(side for side in (low, high) if side)


def _number(bound: Any) -> str:
    value = float(bound)
    if value == int(value) and abs(value) < MAX_WRITTEN_OUT:
        return f"{int(value):,}"
    return f"{value:,.10g}"


def _bounds(parts: Iterable[Any]) -> list[Any]:
    found: list[Any] = []
    for part in parts:
        if isinstance(part, (Gt, Ge, Lt, Le)):
            found.append(part)
        elif isinstance(part, FieldInfo):
            found.extend(_bounds(part.metadata))
            if part.annotation is not None:
                found.extend(_bounds([part.annotation]))
        elif get_origin(part) in (typing.Annotated, typing.Union, types.UnionType):
            found.extend(_bounds(get_args(part)))
    return found


def _annotations_at(model: Any, f: _Found, place: Place) -> list[Any]:
    """Return the types that may stand at a place, following the union branches that the error names."""
    here: list[Any] = [model]
    for depth in range(len(place) + 1):
        for at, label in f.branches:
            if at == depth:
                here = _branch(here, label)
        if depth < len(place):
            here = [found for annotation in here for found in _below(annotation, place[depth])]
    return here


def _branch(annotations: list[Any], label: str) -> list[Any]:
    chosen = [a for a in _alternatives(annotations) if _label(a) == label]
    return chosen or annotations


def _alternatives(annotations: Iterable[Any]) -> list[Any]:
    found: list[Any] = []
    for annotation in annotations:
        if isinstance(annotation, FieldInfo):
            found.extend(_alternatives([annotation.annotation]))
        elif get_origin(annotation) in (typing.Union, types.UnionType):
            found.extend(_alternatives(get_args(annotation)))
        elif get_origin(annotation) is typing.Annotated and not any(isinstance(a, Tag) for a in get_args(annotation)):
            found.extend(_alternatives([get_args(annotation)[0]]))
        else:
            found.append(annotation)
    return found


def _label(annotation: Any) -> str | None:
    if get_origin(annotation) is typing.Annotated:
        return next((a.tag for a in get_args(annotation) if isinstance(a, Tag)), None)
    return getattr(annotation, "__name__", None)


def _below(annotation: Any, step: str | int) -> list[Any]:
    if isinstance(annotation, FieldInfo):
        return _below(annotation.annotation, step)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        for name, info in annotation.model_fields.items():
            if step in (name, info.alias):
                return [info]
        return []
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is typing.Annotated:
        return _below(arguments[0], step)
    if origin in (typing.Union, types.UnionType):
        return [found for part in arguments for found in _below(part, step)]
    if origin is dict:
        return [arguments[1]]
    if origin in (list, tuple, set, frozenset) and arguments and isinstance(step, int):
        return [arguments[0]]
    return []


def _models(annotations: Iterable[Any]) -> list[type[BaseModel]]:
    found: list[type[BaseModel]] = []
    for annotation in annotations:
        if isinstance(annotation, FieldInfo):
            found.extend(_models([annotation.annotation]))
        elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
            found.append(annotation)
        elif get_origin(annotation) is typing.Annotated:
            found.extend(_models(get_args(annotation)[:1]))
        elif get_origin(annotation) in (typing.Union, types.UnionType):
            found.extend(_models(get_args(annotation)))
    return found
