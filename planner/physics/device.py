"""What one accelerator shows as memory, and how much of it an engine may fill (bytes)."""

from __future__ import annotations

from planner.schema.engine import EngineProfile
from planner.schema.hardware import Gpu
from planner.units import BYTES_PER_GB, BYTES_PER_MIB


def device_bytes(gpu: Gpu) -> float:
    """Return the memory that the device shows; the label × 10⁹ where nobody published it (`label_is_used`).

    81,559 MiB shown by an "80 GB" H100 are 85.5 × 10⁹ bytes, or 79.65 GiB.
    """
    if gpu.memory_device_mib is not None:
        return gpu.memory_device_mib * BYTES_PER_MIB
    return gpu.memory_label_gb * BYTES_PER_GB


def label_is_used(gpu: Gpu) -> bool:
    """Say whether the capacity is the figure on the box, for want of one read from a device."""
    return gpu.memory_device_mib is None


def usable_bytes(gpu: Gpu, memory_frac: float, margin_frac: float, taken_first_bytes: float = 0.0) -> float:
    """Return what one GPU may fill: device bytes × min(engine's fraction, 1 − margin). One reserve, never both.

    Unified memory first loses the part that the GPU may not use. An H100 (85.5 × 10⁹ bytes) at the default margin of
    0.15 gives 72.7 × 10⁹ bytes whether the engine's fraction is 0.92 or 0.9. `taken_first_bytes` (`taken_first`) are taken
    before the engine applies its fraction, so they count whole: 0.9 of what 60 of 80 GB leave is 18, together 78 and not 72.
    """
    share_frac = gpu.gpu_memory_share_frac if gpu.gpu_memory_share_frac is not None else 1.0
    room = device_bytes(gpu) * share_frac
    if taken_first_bytes <= 0:
        return room * min(memory_frac, 1.0 - margin_frac)
    return min(room * (1.0 - margin_frac), room * memory_frac + (1.0 - memory_frac) * min(taken_first_bytes, room))


def taken_first(engine: EngineProfile, weights_bytes: float, activation_bytes: float, overhead_bytes: float) -> float:
    """Return the bytes of one GPU that are taken before the engine's memory fraction applies (`EngineProfile.fraction_of`).

    None with vLLM, context and driver with SGLang, all but the KV pool with TensorRT-LLM.
    """
    if engine.fraction_of == "free_memory":
        return overhead_bytes
    if engine.fraction_of == "free_after_weights":
        return weights_bytes + activation_bytes + overhead_bytes
    return 0.0


def device_bytes_needed(need_bytes: float, memory_frac: float) -> float:
    """Return the smallest device that holds `need_bytes` at the engine's fraction: 20.31 GiB at 0.9 need 22.57 GiB.

    >>> round(device_bytes_needed(20.31, 0.9), 2)
    22.57
    """
    return need_bytes / memory_frac
