"""The command line's front door: which commands exist, how faults are told, and what the exit code is."""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from importlib import import_module
from typing import Any

import click

from planner import __version__
from planner.errors import AnswerIsNo, Fault, InputError, PlannerError, did_you_mean, one_line

COMMANDS: dict[str, tuple[str, str]] = {
    "solve": ("planner.cli.solve", "Decide what to buy, rent and call for a workload file; write the plan and its report."),
    "size": ("planner.cli.size", "Say what memory a model needs, what holds it, and what would make it fit."),
    "estimate": ("planner.cli.estimate", "Predict speed on given hardware: TTFT, TPOT, tokens a second, and what bounds them."),
    "validate": ("planner.cli.validate", "Hold predicted speed against measured runs: the error by group, and what was left out."),
    "prices": ("planner.cli.prices", "List, show and check the dated price snapshots."),
    "report": ("planner.cli.report", "Write the report of a plan file again."),
    "init": ("planner.cli.init", "Write a commented starter workload file."),
    "schema": ("planner.cli.schema", "Print a JSON Schema, so that an editor completes and checks the file."),
}
"""Command → module that holds a click command of that name, and its one-line help. Imported only when called."""


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called: `planner --help` imports click and nothing else."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(import_module(COMMANDS[cmd_name][0]), cmd_name)
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            ctx.fail(f"no command '{args[0]}'; {did_you_mean(args[0], COMMANDS)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="planner")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def cli(debug: bool) -> None:
    """Decide what LLM capacity to buy, what to rent and what to call as an API."""


def main(args: list[str] | None = None) -> None:
    """Run the command line. Exit 0: done; 1: the answer is no; 2: bad input; 70: a fault of planner itself."""
    open_streams()
    arguments = sys.argv[1:] if args is None else args
    debug = "--debug" in arguments
    wants_json = "--json" in arguments
    try:
        code = cli.main(args=arguments, prog_name="planner", standalone_mode=False)
        sys.stdout.flush()
        raise SystemExit(code if isinstance(code, int) else 0)
    except (click.exceptions.Abort, KeyboardInterrupt):
        sys.stderr.write("planner: stopped\n")
        raise SystemExit(130) from None
    except click.exceptions.NoArgsIsHelpError as error:
        sys.stderr.write(error.format_message() + "\n")
        raise SystemExit(2) from None
    except click.ClickException as error:
        raise SystemExit(tell(InputError([Fault("", None, "planner", error.format_message().rstrip("."), "")]), wants_json)) from None
    except BrokenPipeError:
        drop_output()
        raise SystemExit(0) from None
    except PlannerError as error:
        if debug:
            raise
        raise SystemExit(tell(error, wants_json)) from None
    except SystemExit as stop:
        if isinstance(stop.__context__, BrokenPipeError):  # rich ends with 1 where the reader left, and 1 means that the answer is no
            raise SystemExit(0) from None
        raise
    except OSError as error:
        if debug:
            raise
        where = os.fsdecode(error.filename) if isinstance(error.filename, (str, bytes)) else ""
        fault = Fault(where, None, "", (error.strerror or str(error)).lower(), "check the path, its permissions and the space left")
        if not where:  # a write to standard output failed
            drop_output()
        raise SystemExit(tell(InputError([fault]), wants_json)) from None
    except Exception as error:
        if debug:
            raise
        sys.stderr.write(f"planner: internal fault, {type(error).__name__}: {one_line(str(error), 200)}; run again with --debug\n")
        raise SystemExit(70) from None


def open_streams() -> None:
    """Give a process that was started without standard streams (`>&-`) streams that lead nowhere, so that no file takes their numbers."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            handle = os.open(os.devnull, os.O_RDWR)
            if handle != number:
                os.dup2(handle, number)
                os.close(handle)
            setattr(sys, name, os.fdopen(number, "r" if number == 0 else "w", encoding="utf-8"))


def drop_output() -> None:
    """Send what is still waiting for standard output nowhere: its reader left, or the disk behind it is full."""
    with suppress(OSError, ValueError):
        number = sys.stdout.fileno()
        os.dup2(os.open(os.devnull, os.O_WRONLY), number)


def tell(error: PlannerError, wants_json: bool) -> int:
    """Print an expected error, one line each on stderr (and as JSON on stdout where asked for); return the exit code."""
    lines = [str(fault) for fault in error.faults] if isinstance(error, InputError) else [one_line(t) for t in str(error).splitlines()]
    for line in lines:
        sys.stderr.write(line + "\n")
    if wants_json:
        reason = error.reason_code if isinstance(error, AnswerIsNo) else "bad_input"
        answer: dict[str, Any] = {"reason_code": reason, "reasons": lines}
        sys.stdout.write(json.dumps(answer, indent=2) + "\n")
    return error.exit_code
