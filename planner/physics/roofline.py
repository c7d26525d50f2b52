"""The roofline: how fast memory and arithmetic allow a step to be, before any engine spoils it.

All figures are for dense peaks at the dtype in use; a multiply-add is two FLOP.
"""

from __future__ import annotations

from typing import Literal

BoundBy = Literal["memory", "compute", "link", "overhead"]


def ridge_flop_per_byte(peak_flop_per_s: float, bandwidth_bytes_per_s: float) -> float:
    """Return the arithmetic intensity at which an accelerator stops being memory bound (FLOP/byte).

    Williams, Waterman, Patterson, "Roofline" (doi:10.1145/1498765.1498785).

    >>> round(ridge_flop_per_byte(989.5e12, 3.35e12))   # H100 SXM, BF16 dense
    295
    """
    return peak_flop_per_s / bandwidth_bytes_per_s


def attainable_flop_per_s(intensity_flop_per_byte: float, peak_flop_per_s: float, bandwidth_bytes_per_s: float) -> float:
    """Return min(peak, intensity × bandwidth), the roof at one intensity (FLOP/s).

    >>> round(attainable_flop_per_s(1.0, 989.5e12, 3.35e12) / 989.5e12, 4)   # decode in 16 bit at batch 1
    0.0034
    """
    return min(peak_flop_per_s, intensity_flop_per_byte * bandwidth_bytes_per_s)


def decode_intensity_flop_per_byte(batch_count: float, bytes_per_param: float) -> float:
    """Return 2·B/b: two FLOP a parameter and sequence over the bytes of that parameter, KV cache left out.

    >>> decode_intensity_flop_per_byte(1, 2.0)
    1.0
    >>> round(decode_intensity_flop_per_byte(1, 0.575), 2)   # Q4_K_M
    3.48
    """
    return 2.0 * batch_count / bytes_per_param


def ceiling_tok_per_s(bandwidth_bytes_per_s: float, bytes_read_bytes: float) -> float:
    """Return the most tokens a second one stream can get: every byte is read once a token, nothing else costs time.

    >>> round(ceiling_tok_per_s(3.35e12, 4.6e9))   # 8B in Q4_K_M on an H100 SXM
    728
    """
    return bandwidth_bytes_per_s / bytes_read_bytes


def distinct_experts_count(expert_count: int, top_k: int, token_count: float) -> float:
    """Return how many of N experts a layer reads for a batch of tokens: N(1 − (1 − k/N)^B), routing taken as even.

    >>> round(distinct_experts_count(256, 8, 16), 2)
    101.96
    """
    missed_frac: float = (1.0 - top_k / expert_count) ** token_count
    return expert_count * (1.0 - missed_frac)


def roof_s(flop: float, bytes_moved_bytes: float, flop_per_s: float, bytes_per_s: float) -> float:
    """Return the time of a kernel that overlaps arithmetic and memory: the slower of the two (s).

    `flop_per_s` and `bytes_per_s` are achieved rates: peak × MFU and bandwidth × MBU.

    >>> round(roof_s(16e9, 4.6e9, 989.5e12 * 0.5, 3.35e12 * 0.7) * 1e3, 3)
    1.962
    """
    return max(flop / flop_per_s, bytes_moved_bytes / bytes_per_s)
