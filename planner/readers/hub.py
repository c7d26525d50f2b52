"""Fetch a model's small JSON files from the Hugging Face Hub, never its weights.

The `huggingface_hub` package brings the cache, tokens, mirrors (`HF_ENDPOINT`) and offline mode (`HF_HUB_OFFLINE`); it is imported
only here, when a Hub id is asked for.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from planner.errors import Fault, InputError
from planner.readers.checkpoint import Checkpoint, read_checkpoint
from planner.schema.llm import WeightFormat

FILES = ("config.json", "hf_quant_config.json", "model.safetensors.index.json")
"""The first is needed; the others are fetched where the model has them."""
TIMEOUT_S = 10.0
MOST_BYTES = 50_000_000
PREFIX = "hub:"
REPO = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")


def hub_id(name: str) -> str | None:
    """Return the Hub id that a name means: `hub:org/name`, or a plain `org/name`; None where it means none.

    >>> hub_id("hub:Qwen/Qwen3-8B"), hub_id("Qwen/Qwen3-8B"), hub_id("qwen3_8b")
    ('Qwen/Qwen3-8B', 'Qwen/Qwen3-8B', None)
    """
    plain = name.removeprefix(PREFIX)
    return plain if REPO.fullmatch(plain) and ".." not in plain and "--" not in plain else None


def read_hub(name: str, formats: Mapping[str, WeightFormat], assume: bool = False, weights: str | None = None) -> Checkpoint:
    """Return the model of a Hub id (`hub:org/name` or `org/name`), named by it. Faults of the Hub and of the files are `InputError`."""
    from planner.readers.config_json import slug

    repo = hub_id(name)
    if repo is None:
        raise InputError([Fault("", None, "llm", f"'{name[:120]}' names no model of the Hub", f"write {PREFIX}organisation/name")])
    found = read_checkpoint(fetch(repo), formats, assume, weights)
    llm = found.llm.model_copy(update={"id": slug(repo), "name": repo, "hf_repo": repo})
    return replace(found, llm=llm)


def fetch(repo: str) -> Path:
    """Return the folder of the local cache that holds the model's config.json, and its other small files where it has them.

    Raises `InputError` with the cure: no package, no network, not found, gated, too many requests, a file too large.
    """
    config = _file(repo, FILES[0])
    if config is None:
        what = f"{repo} on the Hub has no config.json"
        raise InputError([Fault("", None, "llm", what, "for a GGUF repository download one .gguf file and give its path")])
    for name in FILES[1:]:
        _file(repo, name)
    return config.parent


def _file(repo: str, name: str) -> Path | None:
    """Return a fetched file, None where the model has no such file.

    One request without retries asks for the size; where it meets no network, the cache answers.
    """
    try:
        import huggingface_hub as hub
        from huggingface_hub import errors
        from huggingface_hub.utils.tqdm import disable_progress_bars
    except ImportError as error:
        raise _refuse(repo, "the package huggingface_hub is not installed", "pip install huggingface_hub, or") from error
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    disable_progress_bars()
    try:
        size = hub.get_hf_file_metadata(hub.hf_hub_url(repo, name), timeout=TIMEOUT_S).size or 0
        if size > MOST_BYTES:
            raise _refuse(repo, f"its {name} is {size} bytes, more than {MOST_BYTES}", "give another model, or")
        return Path(hub.hf_hub_download(repo, name, etag_timeout=TIMEOUT_S))
    except errors.GatedRepoError as error:
        raise _refuse(repo, "is gated", "accept its terms on the Hub and run `hf auth login`, or") from error
    except errors.RepositoryNotFoundError as error:
        raise _refuse(repo, "is not on the Hub, or is private", "check the name, log in with `hf auth login`, or") from error
    except errors.RemoteEntryNotFoundError:
        return None
    except errors.HfHubHTTPError as error:
        status = getattr(getattr(error, "response", None), "status_code", None)
        if status == 429:
            raise _refuse(repo, "the Hub refuses more requests for now", "wait some minutes, log in with `hf auth login`, or") from error
        raise _refuse(repo, f"the Hub answered with status {status}", "try again later, or") from error
    except errors.HFValidationError as error:
        raise _refuse(repo, "is not a name of the Hub", "write hub:organisation/name, or") from error
    except (getattr(errors, "HTTPError", OSError), OSError) as error:
        return _cached(repo, name, error)


def _cached(repo: str, name: str, error: Exception) -> Path | None:
    """Return a file from the local cache, for there is no network; None where only the config.json is needed and this is another."""
    import huggingface_hub as hub
    from huggingface_hub import errors

    try:
        return Path(hub.hf_hub_download(repo, name, local_files_only=True))
    except errors.LocalEntryNotFoundError:
        if name != FILES[0]:
            return None
        what = f"the Hub cannot be reached ({type(error).__name__}) and the cache has no config.json of {repo}"
        raise _refuse(repo, what, "go online, unset HF_HUB_OFFLINE, or") from error


def _refuse(repo: str, what: str, cure: str) -> InputError:
    text = what if what.startswith(("the ", "its ")) else f"{repo} {what}"
    named = text if repo in text else f"{repo}: {text}"
    return InputError([Fault("", None, "llm", named, f"{cure} download its config.json and give the path")])
