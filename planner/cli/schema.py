"""`planner schema`: the JSON Schema of a file of ours, so that an editor completes and checks it."""

from __future__ import annotations

import click


@click.command()
@click.option("--for", "name", default="workload", metavar="NAME", help="Which file: workload (the default) or another name of ours.")
def schema(name: str) -> None:
    """Print a JSON Schema, so that an editor completes and checks the file.

    Save it beside your workload file, whose first line may then be
    `# yaml-language-server: $schema=./workload.schema.json`.
    """
    from planner.errors import Fault, InputError, did_you_mean
    from planner.schema.export import SCHEMAS, json_schema_text

    if name not in SCHEMAS:
        raise InputError([Fault("", None, "--for", f"no schema '{name}'", did_you_mean(name, SCHEMAS))])
    click.echo(json_schema_text(name), nl=False)
