"""What a user is told when an input is wrong: one line each for file, place, fault and cure; all of them at once."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, order=True)
class Fault:
    """One thing wrong in one input: where it stands, what is wrong, and what to do about it."""

    file: str
    """Path as the user gave it, or `package:` and a path for shipped data; `""` for a command-line value."""
    line: int | None
    place: str
    """Key path (`workloads.chat.llm`), column, or option name."""
    what: str
    cure: str

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.file and self.line else self.file
        head = " ".join(part for part in (where, self.place) if part)
        text = f"{head}: {self.what}" if head else self.what
        return one_line(f"{text}; {self.cure}" if self.cure else text)


class PlannerError(Exception):
    """Base of everything this package raises on purpose; `exit_code` is what the command line returns."""

    exit_code = 2


class InputError(PlannerError):
    """One or more inputs are wrong. Carries every `Fault` found, sorted by file and line."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults: tuple[Fault, ...] = tuple(sorted(set(faults), key=lambda f: (f.file, f.line or 0, f.place, f.what)))
        super().__init__("\n".join(map(str, self.faults)))


def gathered(faults: list[Fault], pick: Callable[..., Any], *args: Any) -> Any:
    """Return `pick(*args)`, or None with its faults added to `faults`: so that all that is wrong is told at once."""
    try:
        return pick(*args)
    except InputError as error:
        faults.extend(error.faults)
        return None


class AnswerIsNo(PlannerError):
    """The inputs are fine and the answer is no: infeasible, stale prices, drift, failed audit. Exit code 1."""

    exit_code = 1

    def __init__(self, reason_code: str, lines: Sequence[str]) -> None:
        self.reason_code = reason_code
        self.lines = tuple(lines)
        super().__init__("\n".join(lines))


def one_line(text: str, limit: int = 600) -> str:
    """Return `text` on one line, control characters made visible, cut at `limit` characters."""
    visible = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text.replace("\n", " "))
    return visible if len(visible) <= limit else visible[: limit - 1] + "…"


def did_you_mean(word: str, known: Iterable[str], also: str = "") -> str:
    """Return the cure for an unknown name: the nearest known ones, or a short list of all.

    >>> did_you_mean("h100_sxm_80", ["h100_sxm_80gb", "l40s_48gb"])
    "did you mean 'h100_sxm_80gb'?"
    """
    names = sorted(known)
    near = difflib.get_close_matches(str(word), names, n=3, cutoff=0.6) or [n for n in names if word and n.startswith(str(word))][:3]
    if near:
        return "did you mean " + " or ".join(f"'{n}'" for n in near) + "?"
    if not names:
        return also or "none are known here"
    shown = ", ".join(names[:8]) + (f" … ({len(names)} in all)" if len(names) > 8 else "")
    return f"known: {shown}" + (f"; {also}" if also else "")
