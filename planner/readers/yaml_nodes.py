"""YAML text to nodes: bounded in depth and aliases, every key with its line, numbers as people write them.

Plain scalars follow YAML 1.1 with its traps removed: `400e6` is a number, `12:30` stays text, `010` stays text, a key is
always text. `no` and `on` remain booleans, and a fault about one says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date
from typing import Any, ClassVar

import yaml

from planner.errors import Fault, InputError, one_line

Step = str | int
Place = tuple[Step, ...]

MAX_DEPTH = 60
MAX_NODES = 250_000
"""Values of one document after its aliases are expanded."""

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NULL = re.compile(r"^(?:~|null|Null|NULL|)$")
_BOOL = re.compile(r"^(?:true|True|TRUE|false|False|FALSE|yes|Yes|YES|no|No|NO|on|On|ON|off|Off|OFF)$")
_INT = re.compile(r"^[-+]?(?:0|[1-9][0-9_]*|0x[0-9a-fA-F_]+)$")
_FLOAT = re.compile(r"^[-+]?(?:\.[0-9][0-9_]*|(?:0|[1-9][0-9_]*)(?:\.[0-9_]*)?)(?:[eE][-+]?[0-9]+)?$")
_NOT_FINITE = re.compile(r"^(?:[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$")
_DATE = re.compile(r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$")
_CORE = "tag:yaml.org,2002:"


@dataclass(slots=True)
class Node:
    """One value with the line it starts on, its text if it was a plain scalar, and its children with their keys' lines."""

    data: Any
    line: int
    size: int = 1
    plain: str | None = None
    children: dict[Step, tuple[int, Node]] = field(default_factory=dict)


def resolve_plain(text: str) -> Any:
    """Return the value of an unquoted scalar.

    >>> [resolve_plain(t) for t in ("400e6", "1_000", "no", "12:30", "2026-12", "~")]
    [400000000.0, 1000, False, '12:30', '2026-12', None]
    """
    if _NULL.match(text):
        return None
    if _BOOL.match(text):
        return text.lower() in ("true", "yes", "on")
    if len(text) <= 60 and _INT.match(text):
        digits = text.replace("_", "")
        return int(digits, 16) if "x" in digits else int(digits)
    if _INT.match(text) or _FLOAT.match(text):
        return float(text.replace("_", "")) if "x" not in text else float("inf")
    if _NOT_FINITE.match(text):
        return float(text.replace(".", ""))
    if _DATE.match(text):
        try:
            return date.fromisoformat(text)
        except ValueError:
            return text
    return text


class FastLoader(_Loader):  # type: ignore[misc]
    """The safe loader with our scalars, text keys and no duplicate keys."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}

    def construct_scalar_plain(self, node: Any) -> Any:
        return resolve_plain(node.value)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[str, Any]:  # noqa: ARG002 (signature of the base)
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode) or key_node.value in result or key_node.value == "<<":
                raise yaml.constructor.ConstructorError(None, None, "left to the careful reader", key_node.start_mark)
            result[key_node.value] = self.construct_object(value_node, deep=True)
        return result


FastLoader.add_implicit_resolver("!plain", re.compile(r""), None)
FastLoader.add_constructor("!plain", FastLoader.construct_scalar_plain)


class _Stop(Exception):
    def __init__(self, line: int, what: str, cure: str) -> None:
        self.fault = (line, what, cure)


class Builder:
    """Turns parser events into nodes, iteratively, so that nothing in a file can exhaust the stack."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.faults: list[Fault] = []
        self.total = 0

    def build(self, text: str) -> Node:
        try:
            root = self._document(yaml.parse(text, Loader=_Loader))
        except _Stop as stop:
            line, what, cure = stop.fault
            self.faults.append(Fault(self.file, line, "", what, cure))
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            self.faults.append(Fault(self.file, mark.line + 1 if mark else None, "", *_syntax(error, text)))
        except yaml.YAMLError as error:
            cure = "remove the character, or write it as an escape in double quotes"
            self.faults.append(Fault(self.file, None, "", one_line(f"not valid YAML: {error}", 160), cure))
        if self.faults:
            raise InputError(self.faults)
        return root

    def _document(self, events: Iterator[Any]) -> Node:
        root: Node | None = None
        anchors: dict[str, Node | None] = {}
        stack: list[_Frame] = []
        for event in events:
            line = event.start_mark.line + 1
            if isinstance(event, yaml.DocumentStartEvent) and root is not None:
                raise _Stop(line, "a second YAML document starts here", "keep one document a file: remove the '---'")
            if isinstance(event, yaml.ScalarEvent):
                node = self._scalar(event, line)
            elif isinstance(event, yaml.AliasEvent):
                known = anchors.get(str(event.anchor))
                if known is None:
                    kind = "refers to itself" if event.anchor in anchors else "refers to no anchor above it"
                    raise _Stop(line, f"the alias *{event.anchor} {kind}", "write the value out")
                node = known
            elif isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
                self._check_tag(event.tag, ("map",) if isinstance(event, yaml.MappingStartEvent) else ("seq",), line)
                if len(stack) >= MAX_DEPTH:
                    raise _Stop(line, f"nested deeper than {MAX_DEPTH} levels", "flatten it")
                data: Any = {} if isinstance(event, yaml.MappingStartEvent) else []
                if event.anchor:
                    anchors[event.anchor] = None
                stack.append(_Frame(Node(data, line), event.anchor))
                continue
            elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
                frame = stack.pop()
                node = frame.node
                if frame.anchor:
                    anchors[frame.anchor] = node
            else:
                continue
            if isinstance(event, yaml.ScalarEvent) and event.anchor:
                anchors[event.anchor] = node
            if stack:
                stack[-1].add(self, event, node, line)
                self._count(stack[-1].node, line)
            else:
                root = node
        if root is None or root.data is None:
            raise _Stop(1, "the file is empty", "write something into it (`planner init` writes a starter workload file)")
        return root

    def _count(self, node: Node, line: int) -> None:
        if node.size > MAX_NODES:
            raise _Stop(line, f"more than {MAX_NODES:,} values once aliases are expanded", "write fewer aliases (*name), or a smaller file")

    def _scalar(self, event: Any, line: int) -> Node:
        tag = self._check_tag(event.tag, ("str", "int", "float", "bool", "null", "timestamp"), line)
        if tag == "str" or (tag is None and not event.implicit[0]):
            return Node(event.value, line)
        return Node(resolve_plain(event.value), line, plain=event.value)

    def _check_tag(self, tag: str | None, allowed: tuple[str, ...], line: int) -> str | None:
        if tag is None or tag == "!":
            return None if tag is None else "str"
        short = tag.removeprefix(_CORE)
        if tag.startswith(_CORE) and short in allowed:
            return short
        shown = "!!" + short if tag.startswith(_CORE) else tag
        raise _Stop(line, f"the tag {shown} is not accepted here", "write plain values without tags")


@dataclass
class _Frame:
    node: Node
    anchor: str | None
    key: str | None = None
    key_line: int = 0
    merges: list[tuple[Node, int]] = field(default_factory=list)

    def add(self, builder: Builder, event: Any, value: Node, line: int) -> None:
        """Add one finished child: an item of a list, the next key, or the value of the key before."""
        if isinstance(self.node.data, list):
            self.node.children[len(self.node.data)] = (line, value)
            self.node.data.append(value.data)
            self.node.size += value.size
        elif self.key is None:
            if not isinstance(event, yaml.ScalarEvent):
                raise _Stop(line, "a key must be a single word", "write `key: value`; quote text that starts with [ or {")
            self.key, self.key_line = event.value, line
        else:
            key, self.key = self.key, None
            if key == "<<":
                self._merge(value, line)
                return
            before = self.node.children.get(key)
            if key in self.node.data and before is not None and before[0] not in {at for _, at in self.merges}:
                builder.faults.append(
                    Fault(builder.file, self.key_line, key, f"this key stands twice (first on line {before[0]})", "keep one of the two")
                )
            self._put(key, value, self.key_line)

    def _put(self, key: str, value: Node, line: int) -> None:
        self.node.data[key] = value.data
        self.node.children[key] = (line, value)
        self.node.size += value.size + 1

    def _merge(self, value: Node, line: int) -> None:
        parts = [child for _, child in value.children.values()] if isinstance(value.data, list) else [value]
        for part in parts:
            if not isinstance(part.data, dict):
                raise _Stop(line, "<<: takes a mapping or a list of mappings", "point it at an anchored mapping (<<: *name)")
            for name, (_, child) in part.children.items():
                if name not in self.node.data:
                    self._put(str(name), child, self.key_line)
            self.merges.append((part, self.key_line))


def _syntax(error: yaml.MarkedYAMLError, text: str) -> tuple[str, str]:
    problem = str(error.problem or error.context or "not valid YAML")
    lines = text.splitlines()
    mark = error.problem_mark
    at = lines[mark.line] if mark is not None and mark.line < len(lines) else ""
    if "\t" in at[: len(at) - len(at.lstrip())] or "'\\t'" in problem:
        return "a tab indents this line, which YAML does not allow", "indent with spaces"
    if "mapping values are not allowed" in problem:
        return "not valid YAML: a ':' where no key can stand", "check the indentation of this line and of the one above, or quote the text"
    if "could not find expected ':'" in problem:
        return "not valid YAML: a key without ':'", "write `key: value`"
    if "anchor" in problem or "alias" in problem:
        return f"not valid YAML: {problem}", "write the value out"
    return f"not valid YAML: {problem}", "check indentation, brackets and quotes near this line"
