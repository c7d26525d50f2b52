"""`planner init`: a commented workload file to start from."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("file", default="workload.yaml", type=click.Path(path_type=Path, dir_okay=True))
@click.option("--force", is_flag=True, help="Overwrite a file that is there already.")
def init(file: Path, force: bool) -> None:
    """Write a commented starter workload file (workload.yaml, unless FILE says otherwise).

    The starter is complete and valid as it is; its comments say what each line means and what to change.
    """
    from planner.catalog import data_root
    from planner.errors import Fault, InputError

    text = (data_root() / "templates" / "starter.workload.yaml").read_text(encoding="utf-8")
    if file.is_dir():
        raise InputError([Fault(str(file), None, "", "this is a folder", "give the name of a file to write")])
    taken = Fault(str(file), None, "", "this file exists already", "give another name, or --force to overwrite it")
    if not force and (file.exists() or file.is_symlink()):
        raise InputError([taken])
    try:
        write_whole(file, text, overwrite=force)
    except FileExistsError:
        raise InputError([taken]) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InputError([Fault(str(file), None, "", f"cannot be written: {reason.lower()}", "give a path that you may write")]) from None
    click.echo(f"{file} written. Edit it, then run: planner solve {file}")


def write_whole(file: Path, text: str, *, overwrite: bool) -> None:
    """Write a file so that nobody ever sees a part of it, and (unless `overwrite`) never over another file."""
    import os
    import tempfile

    handle, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    part = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
        umask = os.umask(0)
        os.umask(umask)
        part.chmod(0o666 & ~umask)
        if overwrite:
            part.replace(file)
        else:
            file.touch(exist_ok=False)
            part.replace(file)
    finally:
        part.unlink(missing_ok=True)
