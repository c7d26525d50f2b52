"""Files of the user's, read whole within bounds: refused by kind and size before a byte is read, and told alike by every reader."""

from __future__ import annotations

import stat
from pathlib import Path

from planner.errors import Fault, InputError


def read_bounded(path: Path, most_bytes: int, wanted: str, *, file: str | None = None, may_be_pipe: bool = False) -> bytes:
    """Return a file's bytes, at most `most_bytes` of them.

    `wanted` is what is asked for (`a YAML file`), `file` the name that faults carry (the path as given, if left out). A pipe or a
    device is read no further than the bound, and only with `may_be_pipe`: one that nobody writes to would be waited for. Raises
    `InputError`: no such file, a folder, no regular file, not readable, too large.
    """
    name = str(path) if file is None else file

    def refuse(what: str, cure: str) -> InputError:
        return InputError([Fault(name, None, "", what, cure)])

    def too_large(size: str) -> InputError:
        return refuse(f"the file is too large: {size}, at most {most_bytes:,} bytes are read", f"see that it is {wanted}")

    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise refuse("this is a folder, not a file", f"give the path of {wanted}")
        if not stat.S_ISREG(status.st_mode) and not may_be_pipe:
            raise refuse("is not a regular file", f"give the path of {wanted}")
        if status.st_size > most_bytes:
            raise too_large(f"{status.st_size:,} bytes")
        with path.open("rb") as stream:
            raw = stream.read(most_bytes + 1)
    except FileNotFoundError:
        raise refuse("no such file", "check the path") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise refuse(f"cannot be read: {reason.lower()}", "check the path and its permissions") from None
    if len(raw) > most_bytes:
        raise too_large("more")
    return raw


def decoded(raw: bytes, file: str, wanted: str) -> str:
    """Return the text of a file's bytes, without a byte-order mark. Raises `InputError` with the line where they are not UTF-8."""
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        what = f"not UTF-8 text (byte 0x{raw[error.start]:02x})"
        raise InputError([Fault(file, line, "", what, f"give {wanted}, saved as UTF-8")]) from None
