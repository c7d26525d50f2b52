"""Number ranges of command-line options."""

from __future__ import annotations

from typing import Any

import click


class Within(click.FloatRange):
    """A number within its bounds; `nan`, which is within none and passes every comparison, is refused."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number, or fail in one line."""
        number = float(super().convert(value, param, ctx))
        if number != number:  # nan alone differs from itself
            self.fail(f"{value} is not a number", param, ctx)
        return number
