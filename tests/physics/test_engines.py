"""`hardware/engines.yaml`: every engine has profiles, versions do not overlap, and every figure says where it comes from."""

from __future__ import annotations

import re
from functools import cache
from itertools import pairwise
from typing import Any, get_args

import pytest
from pydantic import ValidationError

from planner.catalog import Catalog, load_catalog
from planner.schema.engine import EngineName, EngineProfile

LIMITS = {"max_batched_tok": 1, "max_sequence_count": 1}
RULE = {"base_bytes": 0, "step_bytes_per_tok": 0, "gpu_bytes": 0, "graph_bytes_per_sequence": 0}


@cache
def catalog() -> Catalog:
    """Return the shipped catalog."""
    return load_catalog()


def version(text: str) -> tuple[int, ...]:
    """Return a version as numbers: 0.8.4 → (0, 8, 4)."""
    return tuple(int(part) for part in re.findall(r"\d+", text))


def test_every_engine_has_a_profile_of_its_name() -> None:
    """A bare engine name means its newest versions."""
    for name in get_args(EngineName):
        newest = catalog().engine(name)
        assert newest.id == name == newest.engine and newest.version_to is None


def test_versions_of_vllm_do_not_overlap() -> None:
    """From the oldest to the newest each range begins after the one before ends; 0.8 is every 0.8.x not named, 0.5 parts at 0.5.4."""
    rows = [p for p in catalog().engines.values() if p.engine == "vllm"]
    rows.sort(key=lambda p: version(p.version_from or ""))
    assert len(rows) >= 8
    for older, newer in pairwise(rows):
        assert older.version_to is not None and newer.version_from is not None
        assert version(older.version_to) < version(newer.version_from), (older.id, newer.id)
        if (older.id, newer.id) not in {("vllm_0.8.3", "vllm_0.8"), ("vllm_0.5", "vllm_0.7")}:
            assert version(newer.version_from)[1] == version(older.version_to)[1] + 1, "no release is left without a row"


def test_fractions_by_version() -> None:
    """vLLM: 0.92 from 0.22, 0.9 before; TensorRT-LLM's is of what weights leave, SGLang's of what is free at the start."""
    c = catalog()
    assert [c.engine(name).memory_fraction for name in ("vllm", "vllm_0.21", "vllm_0.19", "vllm_0.7")] == [0.92, 0.9, 0.9, 0.9]
    assert c.engine("vllm").cuda_graph_bytes == c.engine("vllm_0.21").cuda_graph_bytes > 0 == c.engine("vllm_0.19").cuda_graph_bytes
    assert {p.engine: p.fraction_of for p in c.engines.values() if p.fraction_of != "device_memory"} == {
        "sglang": "free_memory", "tensorrt_llm": "free_after_weights",
    }


def test_chunked_layers_are_kept_whole_up_to_0_12() -> None:
    """vLLM pulls 21761 and 29627."""
    kept = {p.id for p in catalog().engines.values() if p.chunked_keeps_all}
    assert kept == {"vllm_0.5", "vllm_0.7", "vllm_0.8.3", "vllm_0.8", "vllm_0.9", "vllm_0.12"}


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"batch_defaults": [{"device_gib_from": 1, **LIMITS}]}, "device_gib_from 0"),
        ({"batch_defaults": [{"device_gib_from": 0, "not_families": ["ada"], **LIMITS}]}, "every family"),
        ({"batch_defaults": []}, "device_gib_from 0"),
        ({"default_contexts": [{"device_gib_from": 24, "context_tok": 1}]}, "default_contexts"),
        ({"memory_fraction": 0.0}, "above 0"),
        ({"memory_fraction": 1.1}, "less than or equal to 1"),
        ({"fraction_of": "host_memory"}, "free_after_weights"),
        ({"reserve": {**RULE, "base_bytes": -1}}, "greater than or equal to 0"),
        ({"engine": "ollama"}, "llama_cpp"),
        ({"speed": 1}, "Extra inputs"),
    ],
)
def test_a_wrong_profile_is_refused(change: dict[str, Any], word: str) -> None:
    """Each fault is named."""
    row = {**catalog().engine("vllm").model_dump(), **change}
    with pytest.raises(ValidationError, match=word):
        EngineProfile.model_validate(row)
