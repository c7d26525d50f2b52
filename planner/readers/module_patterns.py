"""Which modules of a model the patterns of a quantisation name: full names, parts of names, globs, and `re:` expressions.

Published files name modules in four dialects: whole names (`model.layers.0.mlp.gate`), parts (`gate`, `self_attn`), globs
(`model.layers.*.self_attn`, `lm_head*`) and, in compressed-tensors, expressions after `re:`. An expression comes from a file that
anyone may have written, so only those whose worst case is a few thousand steps a name are run; another is refused.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from fnmatch import fnmatchcase

MOST_PATTERNS = 20_000
MOST_SLOW_PATTERNS = 200
"""Globs, parts and expressions are tried one by one; whole names are looked up."""
MOST_LETTERS = 300
MOST_STARS = 3
MOST_NAME_LETTERS = 60
MOST_STEPS = 50_000
"""Ways all expressions of a list may split one name: an open end stops at any letter, a group takes any alternative."""
SYNONYMS = (("block_sparse_moe", "mlp"), ("feed_forward", "mlp"), ("shared_experts", "shared_expert"), ("shared_mlp", "shared_expert"))
PREFIXES = ("model.", "model.language_model.", "language_model.model.", "")
LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks)\.(?=[\d*])")
CLASS = re.compile(r"\[\^?(?:\w(?:-\w)?|\.)+\]")
OPEN_END = re.compile(r"(?:(?<!\\)\.|\\[wWsSD]|\[\^?(?:\w(?:-\w)?|\.)+\])(?:[*+]|\{\d*,?\d*\})\??")
DIGITS = re.compile(r"\\d[*+]|\[0-9\][*+]")


def same_words(name: str) -> str:
    """Return a name in the words used here: families call the feed-forward part and shared experts differently."""
    for word, ours in SYNONYMS:
        name = name.replace(word, ours)
    return name


def from_layer(name: str) -> str:
    """Return a name from `layers.` on, whatever stands before it; a name outside the layers without `model.` and its like."""
    match = LAYER.search(name)
    if match:
        return "layers." + name[match.end():]
    for prefix in ("model.language_model.", "language_model.model.", "language_model.", "model."):
        if name.startswith(prefix):
            return name[len(prefix):]
    return name


class Patterns:
    """Patterns of one list of a file. `why_not` says of the first pattern that is not run why; None where all are."""

    def __init__(self, patterns: Iterable[object]) -> None:
        self.why_not: str | None = None
        self._whole: set[str] = set()
        self._parts: list[str] = []
        self._globs: list[str] = []
        self._expressions: list[re.Pattern[str]] = []
        self._steps = 0
        for number, pattern in enumerate(patterns):
            if not isinstance(pattern, str) or not pattern or len(pattern) > MOST_LETTERS or number >= MOST_PATTERNS:
                self._refuse(f"entry {number} is not a short name, or there are more than {MOST_PATTERNS}")
                return
            self._add(same_words(pattern))
        if len(self._parts) + len(self._globs) + len(self._expressions) > MOST_SLOW_PATTERNS:
            self._refuse(f"more than {MOST_SLOW_PATTERNS} patterns that name no single module")

    def __bool__(self) -> bool:
        return bool(self._whole or self._parts or self._globs or self._expressions)

    def _refuse(self, why: str) -> None:
        self.why_not = self.why_not or why

    def _add(self, pattern: str) -> None:
        from planner.readers.tensor_names import PREDICTION, TOWERS

        if any(word in pattern for word in TOWERS) or PREDICTION & set(pattern.replace("*", ".").split(".")):
            return
        if pattern.startswith("re:"):
            self._add_expression(pattern[3:])
            return
        name = from_layer(pattern)
        stem = name.removesuffix("*").removesuffix(".")
        if name.endswith("*") and "*" not in stem and stem and not stem[-1].isdigit():
            name = stem
        if any(sign in name for sign in "*?["):
            if name.count("*") > MOST_STARS:
                self._refuse(f"glob {pattern[:60]!r} has more than {MOST_STARS} stars")
                return
            self._add_once(self._globs, name)
        elif name.startswith("layers."):
            self._whole.add(name)
        else:
            self._add_once(self._parts, name)

    @staticmethod
    def _add_once(into: list[str], name: str) -> None:
        if name not in into[-MOST_SLOW_PATTERNS - 1:]:
            into.append(name)

    def _add_expression(self, text: str) -> None:
        """Take an expression of letters, classes, open ends and plain alternatives, as long as the worst case of all stays small."""
        body = text
        while body.endswith((".*", ".*$")):
            body = body.removesuffix("$").removesuffix(".*")
        calm = DIGITS.sub("0", body.replace("(?:", "("))
        rest = OPEN_END.sub("", calm)
        if re.search(r"(?<!\\)[*+{?]|\\[1-9AbBzZgpuUxN]|\[", CLASS.sub("", rest)):
            self._refuse(f"expression {text[:60]!r} repeats groups or letters, looks around, or refers back")
            return
        ends, groups = len(OPEN_END.findall(calm)), rest.count("(")
        self._steps += math.comb(MOST_NAME_LETTERS + ends, ends) * (rest.count("|") + 1) ** max(1, groups)
        if self._steps > MOST_STEPS:
            self._refuse(f"expression {text[:60]!r} and those before it may take more than {MOST_STEPS} steps a name")
            return
        try:
            self._expressions.append(re.compile(body))
        except (re.error, OverflowError, RecursionError):
            self._refuse(f"expression {text[:60]!r} is none")

    def match(self, name: str) -> bool:
        """Return whether a pattern names this module or one that holds it (`layers.0` holds `layers.0.mlp.up_proj`)."""
        parts = name.split(".")
        if self._whole and any(".".join(parts[:end]) in self._whole for end in range(2, len(parts) + 1)):
            return True
        dotted = f".{name}."
        if any(f".{part}." in dotted for part in self._parts):
            return True
        if any(fnmatchcase(name, glob) or fnmatchcase(name, glob + ".*") for glob in self._globs):
            return True
        return any(expression.match(prefix + name) for expression in self._expressions for prefix in PREFIXES)
