"""Conversions, the calendar of a plan, and the one list of unit suffixes that names may end in."""

from __future__ import annotations

BYTES_PER_GB = 1e9
BYTES_PER_GIB = 2.0**30
BYTES_PER_MIB = 2.0**20
TOK_PER_MTOK = 1e6
SECONDS_PER_HOUR = 3600.0
HOURS_PER_WEEK = 168
HOURS_PER_YEAR = 8760.0
MONTHS_PER_YEAR = 12
HOURS_PER_MONTH = HOURS_PER_YEAR / MONTHS_PER_YEAR
"""730 hours: every month of a plan is one twelfth of 8,760 hours, so a year always has the same cost."""
WEEKS_PER_MONTH = HOURS_PER_MONTH / HOURS_PER_WEEK

SUFFIXES: tuple[str, ...] = (
    # memory, compute, bandwidth
    "_bytes", "_gb", "_gib", "_mib", "_flop", "_tflop_per_s", "_flop_per_s", "_gb_per_s", "_bytes_per_s",
    "_bytes_per_tok", "_bytes_per_value", "_bits_per_weight", "_flop_per_byte", "_bytes_per_sequence",
    # time
    "_ms", "_s", "_us", "_hours", "_days", "_months", "_years", "_minutes",
    # tokens and requests
    "_tok", "_mtok", "_tok_per_s", "_tok_per_day", "_tok_per_min", "_tok_per_month", "_req_per_s", "_req_per_min",
    "_requests_per_day", "_tok_per_hour", "_tok_per_week",
    # money
    "_usd", "_usd_per_node_hour", "_usd_per_gpu_hour", "_usd_per_mtok", "_usd_per_kwh", "_usd_per_year", "_usd_per_month",
    "_usd_per_node_month", "_usd_per_kw_month", "_usd_per_t", "_usd_per_unit", "_usd_per_hour",
    # power and carbon
    "_w", "_kw", "_kwh", "_g_per_kwh", "_t_per_year", "_t",
    # ratio and count
    "_frac", "_count", "_frac_per_year", "_frac_per_month", "_cv",
)
"""Every suffix a number's name may end in (a test walks the schemas; `BARE` lists what the field writes without one)."""

BARE: frozenset[str] = frozenset(
    {
        "head_dim", "v_head_dim", "rope_dim", "kv_lora_rank", "hidden_size", "intermediate_size", "expert_intermediate_size",
        "vocab_size", "group_size", "top_k", "pue", "tp", "pp", "ep", "seed", "count", "gpu_count", "growth", "month", "confidence", "cv",
    }
)
