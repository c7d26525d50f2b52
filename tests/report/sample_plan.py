"""A plan made by hand for the report's tests: every figure in it is invented, and its lines add up.

`sample_plan()` reads like a team's plan; `hostile_plan()` is the same with names that try to become markup, code or formulas.
"""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from typing import Any

from planner.schema.plan import (
    Alternative,
    Band,
    BreakEven,
    CostLine,
    Decision,
    DispatchRow,
    Evidence,
    Exclusion,
    Latency,
    MemoryByTerm,
    Plan,
    PlanInput,
    Risk,
    RooflinePoint,
    Run,
    SolverReport,
    Supply,
    Timeslice,
    Usage,
    WorkloadPlan,
)

H = 36
RATE = 0.08
HOSTILE = (
    "<script>alert(1)</script>",
    "{{7*7}} {% raw %}",
    '#eval("1+1") #panic()',
    "$x$ *bold* _it_ `code` [link](https://evil.example)",
    '=HYPERLINK("https://evil.example","x")',
    "\u202eevil\u202c שלום עולם مرحبا",
    "rocket 🚀 and 中文 names",
    "W" * 200,
)
"""Names that must be shown as text."""

_SLICES: tuple[tuple[str, tuple[tuple[int, int, int], ...], float, float], ...] = (
    # label, (day, from, to) stretches, chat factor, batch factor
    ("Mon-Fri 09-13", tuple((d, 9, 13) for d in range(5)), 1.0, 0.5),
    ("Mon-Fri 13-18", tuple((d, 13, 18) for d in range(5)), 0.8, 0.5),
    ("Mon-Fri 07-09, 18-22", tuple((d, a, b) for d in range(5) for a, b in ((7, 9), (18, 22))), 0.4, 1.0),
    ("Mon-Fri 22-07", tuple((d, a, b) for d in range(5) for a, b in ((0, 7), (22, 24))), 0.05, 1.6),
    ("Sat-Sun", tuple((d, 0, 24) for d in (5, 6)), 0.12, 0.8),
)


def _hours(stretches: tuple[tuple[int, int, int], ...]) -> tuple[int, ...]:
    return tuple(sorted(24 * day + hour for day, a, b in stretches for hour in range(a, b)))


def _line(name: str, title: str, by_month: list[float], at_start: bool = False) -> CostLine:
    d = (1 + RATE) ** (1 / 12) - 1
    months = [*by_month, *[0.0] * (H + 1 - len(by_month))]
    npv = sum(usd * (1 + d) ** -(m if at_start or m == H else m + 1) for m, usd in enumerate(months))
    return CostLine(name=name, title=title, npv_usd=npv, total_usd=math.fsum(months), usd_by_month=tuple(months))


def sample_plan(names: tuple[str, ...] = ()) -> Plan:
    """Return the plan; `names` replace what a user may name freely, in turn."""

    def named(index: int, usual: str) -> str:
        return names[index % len(names)] if names else usual

    growth = [1.03**m for m in range(H)]
    chat, code, night = named(0, "support_chat"), named(1, "code_assistant"), named(2, "nightly_summaries")
    lines = (
        _line("capex", "Purchase of nodes", [86_500.0], at_start=True),
        _line("residual", "Residual value of nodes", [0.0] * H + [-12_110.0]),
        _line("support", "Hardware support", [0.0] * 3 + [577.0] * 33),
        _line("energy", "Energy", [0.0] * 3 + [612.0] * 33),
        _line("site_ops", "Site operations", [0.0] * 3 + [4_150.0] * 33),
        _line("rent_on_demand", "Rent on demand", [5_900.0] * 3 + [max(0.0, 110.0 * (m - 12)) for m in range(3, H)]),
        _line("api_tokens", "API tokens", [2_300.0 * growth[m] * (1.6 if m < 3 else 1.0) for m in range(H)]),
        _line("staff", "Staff who operate serving", [6_000.0] * H),
    )
    npv, tco = math.fsum(x.npv_usd for x in lines), math.fsum(x.total_usd for x in lines)
    first_year = math.fsum(sum(x.usd_by_month[:12]) for x in lines)

    slices = tuple(
        Timeslice(
            index=i,
            label=label,
            hours_of_week=_hours(stretches),
            hours_per_month=len(_hours(stretches)) * 730 / 168,
            mean_req_per_s={chat: 2.4 * f, code: 3.1 * f, night: 0.5 * b},
            peak_req_per_s={chat: 2.9 * f, code: 3.6 * f, night: 0.5 * b},
        )
        for i, (label, stretches, f, b) in enumerate(_SLICES)
    )
    own, rent, api = "own.l40s_x4.office_rack", "rent.northcloud.h100_x2.on_demand", "openai.gpt_4.1_mini"
    night_api = "alibaba.qwen3_32b"
    k_own, k_rent, k_night = f"{chat}.fp8.{own}", f"{chat}.fp8.{rent}", f"{night}.fp8.{own}"
    rows = []
    for m in range(H):
        for s in slices:
            late = m >= 3
            extra = 1 if late and m > 12 and s.index < 2 else 0
            rows.append(
                DispatchRow(
                    month=m,
                    timeslice=s.index,
                    nodes={own: 2, rent: extra} if late else {rent: 2 if s.index < 3 else 1},
                    replicas={k_own: 1, k_night: 1, k_rent: extra} if late else {k_rent: 2 if s.index < 3 else 1},
                    shares={
                        chat: {k_own: 0.8 if extra else 1.0, **({k_rent: 0.2} if extra else {})} if late else {k_rent: 1.0},
                        code: {api: 1.0},
                        night: {k_night: 1.0} if late else {night_api: 1.0},
                    },
                )
            )
    mu = {k_own: 9.0, k_rent: 6.5, k_night: 4.0}

    def memory(weights_gb: float, kv_gb: float, usable_gb: float, device_gb: float, ctx: int, seqs: int, kv_tok: float) -> MemoryByTerm:
        act, over = 2.1e9, 3.4e9
        total = weights_gb * 1e9 + kv_gb * 1e9 + act + over
        dominant = "kv_cache" if kv_gb > weights_gb else "weights"
        return MemoryByTerm(
            weights_bytes=weights_gb * 1e9,
            kv_bytes=kv_gb * 1e9,
            activation_bytes=act,
            overhead_bytes=over,
            total_bytes=total,
            usable_bytes=usable_gb * 1e9,
            device_bytes=device_gb * 1e9,
            dominant_term=dominant,
            max_sequences_count=int(seqs * 1.15),
            context_tok=ctx,
            sequences_count=seqs,
            kv_bytes_per_tok=kv_tok,
        )

    def points(ridge: float, peak: float, bandwidth: float, decode: float) -> tuple[RooflinePoint, ...]:
        return (
            RooflinePoint(
                phase="prefill",
                intensity_flop_per_byte=1900.0,
                ridge_flop_per_byte=ridge,
                attainable_tflop_per_s=peak,
                achieved_tflop_per_s=peak * 0.52,
                peak_tflop_per_s=peak,
                bandwidth_gb_per_s=bandwidth,
                bound_by="compute",
                dtype="fp8",
            ),
            RooflinePoint(
                phase="decode",
                intensity_flop_per_byte=decode,
                ridge_flop_per_byte=ridge,
                attainable_tflop_per_s=decode * bandwidth / 1e3,
                achieved_tflop_per_s=decode * bandwidth / 1e3 * 0.71,
                peak_tflop_per_s=peak,
                bandwidth_gb_per_s=bandwidth,
                bound_by="memory bandwidth",
                dtype="fp8",
            ),
        )

    l40s = points(419.0, 362.0, 864.0, 18.0)
    h100 = points(591.0, 1979.0, 3350.0, 24.0)
    own_name, rent_name = "4x L40S 48 GB server at office rack", "2x H100 SXM by Northcloud, on demand"
    if names:
        own_name, rent_name = f"4x L40S at {names[0]}", names[6]
    limits = {"max_context_tok": 8192.0, "max_sequences_count": 36.0, "memory_fraction_frac": 0.85, "tp": 4.0, "pp": 1.0}
    nothing: dict[str, Any] = dict.fromkeys(
        (
            "variant",
            "weights",
            "kv_cache",
            "gpu",
            "gpu_name",
            "gpus_per_replica_count",
            "tp",
            "pp",
            "replicas_max_count",
            "req_per_s_per_replica",
            "batch_count",
            "band",
            "memory",
        )
    )
    workloads = (
        WorkloadPlan(
            id=chat,
            kind="serving",
            llm="llama_3.3_70b_instruct",
            llm_name=named(3, "Llama 3.3 70B Instruct"),
            variant=f"{chat}.fp8.fp16",
            supplies=(
                Supply(
                    kind="own",
                    pool=own,
                    name=own_name,
                    request_share_frac=0.86,
                    variant="v",
                    weights="fp8",
                    kv_cache="fp16",
                    gpu="l40s_48gb",
                    gpu_name="NVIDIA L40S 48 GB",
                    gpus_per_replica_count=4,
                    tp=4,
                    pp=1,
                    replicas_max_count=1,
                    req_per_s_per_replica=9.0,
                    batch_count=28.4,
                    band=Band(low=7.2, typical=9.0, high=10.4, unit="req/s", basis="measured"),
                    memory=memory(70.6, 85.899345920, 163.2, 192.0, 8192, 32, 327680.0),
                    roofline=l40s,
                    latency=Latency(
                        ttft_p99_ms=1312.0,
                        tpot_p99_ms=57.1,
                        e2e_p99_ms=None,
                        ttft_p99_target_ms=1500.0,
                        tpot_p99_target_ms=60.0,
                        e2e_p99_target_ms=None,
                    ),
                    limits=limits,
                ),
                Supply(
                    kind="on_demand",
                    pool=rent,
                    name=rent_name,
                    request_share_frac=0.14,
                    variant="v",
                    weights="fp8",
                    kv_cache="fp16",
                    gpu="h100_sxm_80gb",
                    gpu_name="NVIDIA H100 SXM 80 GB",
                    gpus_per_replica_count=2,
                    tp=2,
                    pp=1,
                    replicas_max_count=2,
                    req_per_s_per_replica=6.5,
                    batch_count=19.0,
                    band=Band(low=4.4, typical=6.5, high=8.9, unit="req/s", basis="assumed"),
                    memory=memory(70.6, 53.687091200, 136.0, 171.0, 8192, 20, 327680.0),
                    roofline=h100,
                    latency=Latency(
                        ttft_p99_ms=820.0,
                        tpot_p99_ms=41.0,
                        e2e_p99_ms=None,
                        ttft_p99_target_ms=1500.0,
                        tpot_p99_target_ms=60.0,
                        e2e_p99_target_ms=None,
                    ),
                    limits={**limits, "tp": 2.0, "max_sequences_count": 23.0},
                ),
            ),
            requests_per_month_first=1_825_000.0,
            requests_per_month_last=1_825_000.0 * growth[-1],
            peak_req_per_s_first=2.9,
            peak_req_per_s_last=2.9 * growth[-1],
            npv_usd=npv * 0.55,
            usd_per_mtok=0.61,
            usd_per_request=0.00126,
            privacy_allow=("own", "rent"),
            privacy_regions=("eu",),
            binding="Mon-Fri 09-13: KV room, 32 of 36 sequences held at once",
            warnings=(),
        ),
        WorkloadPlan(
            id=code,
            kind="serving",
            llm="qwen3_coder_30b",
            llm_name="Qwen3 Coder 30B A3B",
            variant=None,
            supplies=(
                Supply(
                    kind="api",
                    pool=api,
                    name=named(4, "gpt-4.1-mini by OpenAI"),
                    request_share_frac=1.0,
                    latency=Latency(
                        ttft_p99_ms=None,
                        tpot_p99_ms=None,
                        e2e_p99_ms=None,
                        ttft_p99_target_ms=2000.0,
                        tpot_p99_target_ms=50.0,
                        e2e_p99_target_ms=None,
                    ),
                    **nothing,
                ),
            ),
            requests_per_month_first=2_400_000.0,
            requests_per_month_last=2_400_000.0 * growth[-1],
            peak_req_per_s_first=3.6,
            peak_req_per_s_last=3.6 * growth[-1],
            npv_usd=npv * 0.36,
            usd_per_mtok=0.87,
            usd_per_request=0.00098,
            privacy_allow=("own", "rent", "api"),
            privacy_regions=("eu", "us"),
            binding="requests a minute of the account: 42 % used at the peak",
            warnings=("The latency of gpt-4.1-mini by OpenAI is not proven: `api_unproven: accept` was set.",),
        ),
        WorkloadPlan(
            id=night,
            kind="batch",
            llm="qwen3_32b",
            llm_name="Qwen3 32B",
            variant=f"{night}.fp8.fp16",
            supplies=(
                Supply(
                    kind="own",
                    pool=own,
                    name=own_name,
                    request_share_frac=0.93,
                    variant="v",
                    weights="fp8",
                    kv_cache="fp16",
                    gpu="l40s_48gb",
                    gpu_name="NVIDIA L40S 48 GB",
                    gpus_per_replica_count=2,
                    tp=2,
                    pp=1,
                    replicas_max_count=2,
                    req_per_s_per_replica=4.0,
                    batch_count=44.0,
                    band=Band(low=3.1, typical=4.0, high=4.7, unit="req/s", basis="measured"),
                    memory=memory(33.1, 34.359738368, 81.6, 96.0, 4096, 32, 262144.0),
                    roofline=points(419.0, 362.0, 864.0, 31.0),
                    latency=None,
                    limits={**limits, "tp": 2.0, "max_context_tok": 4096.0},
                ),
                Supply(kind="api", pool=night_api, name="qwen3-32b by Alibaba", request_share_frac=0.07, **nothing),
            ),
            requests_per_month_first=1_050_000.0,
            requests_per_month_last=1_050_000.0 * growth[-1],
            peak_req_per_s_first=0.8,
            peak_req_per_s_last=0.8 * growth[-1],
            npv_usd=npv * 0.09,
            usd_per_mtok=0.11,
            usd_per_request=0.00031,
            privacy_allow=("own", "rent", "api"),
            privacy_regions=("eu", "us"),
            binding="the 24 h deadline of Friday's work",
            warnings=(),
        ),
    )
    own_lines = (
        _line("capex", "Purchase of nodes", [129_750.0], at_start=True),
        _line("residual", "Residual value of nodes", [0.0] * H + [-18_165.0]),
        _line("site_ops", "Site operations", [0.0] * 3 + [5_900.0] * 33),
        _line("rent_on_demand", "Rent on demand", [11_000.0] * 3),
        _line("staff", "Staff who operate serving", [6_000.0] * H),
        _line("other", "Energy and support", [0.0] * 3 + [4_300.0] * 33),
    )
    rent_lines = (
        _line("rent_on_demand", "Rent on demand", [12_900.0 * growth[m] ** 0.4 for m in range(H)]),
        _line("staff", "Staff who operate serving", [6_000.0] * H),
    )
    own_npv, rent_npv = (math.fsum(x.npv_usd for x in found) for found in (own_lines, rent_lines))
    own_tco, rent_tco = (math.fsum(x.total_usd for x in found) for found in (own_lines, rent_lines))
    site = named(2, "office_rack")
    headline = (
        "Buy 2 nodes of 4x L40S 48 GB for office rack now, rent 2x H100 by the hour until they serve in Mar 2027, "
        f"and call gpt-4.1-mini for code assistant: ${npv:,.0f} over 36 months (NPV), "
        f"${rent_npv - npv:,.0f} less than the best plan that only rents."
    )
    if names:
        headline = f"Buy 2 nodes for {names[0]} {names[1]} {names[2]}: ${npv:,.0f} over 36 months (NPV). {names[5]} {names[6]}"
    return Plan(
        title=named(3, "Team: chat, code and nightly summaries"),
        start="2026-12",
        as_of=date(2026, 11, 30),
        horizon_months=H,
        timezone="Europe/Madrid",
        discount_frac_per_year=RATE,
        prices_day=date(2026, 11, 30),
        inputs=(
            PlanInput(role="workload", path="workloads/team.yaml", sha256="a1" * 32, as_of=date(2026, 11, 30)),
            PlanInput(role="snapshot", path="package:pricing/2026-11-30", sha256="b2" * 32, as_of=date(2026, 11, 30)),
            PlanInput(role="hardware", path="package:hardware/gpus/nvidia_datacenter.yaml", sha256="c3" * 32),
            PlanInput(role="model", path="package:workloads/models/llama_3.3_70b_instruct.yaml", sha256="d4" * 32),
        ),
        headline=headline,
        decisions=(
            Decision(
                month=0,
                month_label="Dec 2026",
                action="buy",
                pool=own,
                node="l40s_x4",
                node_name="4x L40S 48 GB server",
                provider=None,
                site=site,
                count=2,
                usd=86_500.0,
                in_service_month=3,
                reason="Chat must stay in the EU and on hardware you control; two nodes hold its peak with one replica to spare.",
                price_ids=("supermicro.l40s_x4.2026",),
            ),
            Decision(
                month=0,
                month_label="Dec 2026",
                action="rent",
                pool=rent,
                node="northcloud_h100_x2",
                node_name="2x H100 SXM 80 GB",
                provider=named(5, "northcloud"),
                site=None,
                count=2,
                usd=lines[5].total_usd,
                hours_per_month=412.0,
                until_month=None,
                reason="Carries chat until the purchased nodes serve in Mar 2027, then the weekday peak from month 13.",
                price_ids=("northcloud.h100_x2.eu.on_demand",),
            ),
            Decision(
                month=0,
                month_label="Dec 2026",
                action="call",
                pool=api,
                node=None,
                node_name=named(4, "gpt-4.1-mini"),
                provider="openai",
                site=None,
                count=0,
                usd=lines[6].total_usd,
                requests_per_month=4_100_000.0,
                reason="Cheaper than owning at this volume: a node of its own would stand idle 71 % of the week.",
                price_ids=("openai.gpt_4.1_mini",),
            ),
        ),
        cost_lines=lines,
        npv_cost_usd=npv,
        tco_usd=tco,
        first_year_usd=first_year,
        staff_usd=216_000.0,
        workloads=workloads,
        timeslices=slices,
        dispatch=tuple(rows),
        usage=(
            Usage(
                pool=own,
                name=own_name,
                kind="own",
                node_hours_paid=48_180.0,
                node_hours_used=27_500.0,
                utilization_frac=0.571,
                peak_utilization_frac=0.93,
            ),
            Usage(
                pool=rent,
                name=rent_name,
                kind="on_demand",
                node_hours_paid=14_832.0,
                node_hours_used=12_100.0,
                utilization_frac=0.816,
                peak_utilization_frac=0.97,
            ),
        ),
        alternatives=(
            Alternative(
                name="all_own",
                title="Own everything",
                npv_cost_usd=own_npv,
                tco_usd=own_tco,
                difference_usd=own_npv - npv,
                reason="Needs a third node that is used 29 % of the week; bridged by rent until delivery.",
                cost_lines=own_lines,
            ),
            Alternative(
                name="all_rent",
                title="Rent everything",
                npv_cost_usd=rent_npv,
                tco_usd=rent_tco,
                difference_usd=rent_npv - npv,
                reason="Two nodes on demand around the clock cost more than owning them after 15 months.",
                cost_lines=rent_lines,
            ),
            Alternative(
                name="all_api",
                title="Call APIs for everything",
                npv_cost_usd=None,
                tco_usd=None,
                difference_usd=None,
                reason="Support chat allows own and rent only (privacy), so no API may serve it.",
            ),
        ),
        break_even=(
            BreakEven(
                node="l40s_x4",
                node_name="4x L40S 48 GB server",
                site=site,
                workload=chat,
                rival=rent_name,
                meaning="hours_billed",
                utilization_frac=0.34,
                today_frac=0.57,
                own_usd_per_month=4_210.0,
                rival_usd_per_month_full=12_380.0,
                text="Owning is cheaper than renting by the hour from 34 % of the month's hours; the plan uses 57 %.",
            ),
            BreakEven(
                node="l40s_x4",
                node_name="4x L40S 48 GB server",
                site=site,
                workload=code,
                rival="gpt-4.1-mini by OpenAI",
                meaning="share_of_capacity",
                utilization_frac=None,
                today_frac=0.22,
                own_usd_per_month=4_210.0,
                rival_usd_per_month_full=3_900.0,
                text="Not reached within what the node can serve.",
            ),
        ),
        exclusions=(
            Exclusion(workload=chat, option="gpt-4.1-mini by OpenAI", kind="privacy", reason="support chat allows own and rent only"),
            Exclusion(workload=chat, option="mistral-small-3.2 by Mistral", kind="privacy", reason="support chat allows own and rent only"),
            Exclusion(workload=chat, option="8x H100 by Westcloud, us_east", kind="region", reason="eu asked, the offer stands in us_east"),
            Exclusion(workload=chat, option="1x L40S, fp8", kind="memory", reason="weights need 70.6 GB, one L40S gives 40.8 GB"),
            Exclusion(
                workload=code, option="llama-3.3-70b by Cheapinfer", kind="attribute", reason="zero retention is not stated by the offer"
            ),
            Exclusion(
                workload=night, option="8x MI300X by Northcloud", kind="stale", reason="price of 2026-03-02 is 273 days old, 90 allowed"
            ),
        ),
        solver=SolverReport(
            name="HiGHS 1.11",
            status="optimal",
            npv_bound_usd=npv * 0.99993,
            gap_frac=0.00007,
            gap_asked_frac=0.0001,
            reproducible=True,
            row_count=9_842,
            column_count=6_120,
            rechecked="all rows hold and the cost lines sum to the objective (relative difference 2e-12)",
        ),
        evidence=(
            Evidence(
                id="price.northcloud.h100_x2",
                name="Rent of 2x H100 SXM by Northcloud",
                value=7.98,
                unit="usd_per_node_hour",
                formula=None,
                source="https://northcloud.example/pricing",
                as_of=date(2026, 10, 10),
                kind="list_price",
                note='printed "$3.99 / GPU / hr"',
            ),
            Evidence(
                id="price.l40s_x4",
                name="Price of a 4x L40S server",
                value=43_250.0,
                unit="usd",
                formula=None,
                source="doi:10.0000/example",
                as_of=date(2026, 3, 1),
                kind="published",
            ),
            Evidence(
                id="mem.kv_per_tok",
                name="KV cache of one token, Llama 3.3 70B",
                value=327_680.0,
                unit="bytes_per_tok",
                formula="2 × 80 layers × 8 KV heads × 128 × 2 bytes",
                source="package:workloads/models/llama_3.3_70b_instruct.yaml",
                as_of=date(2026, 11, 1),
                kind="derived",
            ),
            Evidence(
                id="eff.mbu",
                name="Share of the bandwidth reached in decode, L40S, fp8",
                value=0.71,
                unit="frac",
                formula=None,
                source="package:hardware/efficiency/vllm.yaml",
                as_of=date(2026, 9, 1),
                kind="measured",
                note="n = 14, p10 0.62, p90 0.78",
            ),
            Evidence(
                id="eff.mfu.h100",
                name="Share of peak reached in prefill, H100, fp8",
                value=0.52,
                unit="frac",
                formula=None,
                source=None,
                as_of=date(2026, 9, 1),
                kind="assumed",
                note="no fp8 prefill run; taken from bf16",
            ),
            Evidence(
                id="in.discount",
                name="Discount rate",
                value=RATE,
                unit="frac_per_year",
                formula=None,
                source="workloads/team.yaml",
                as_of=date(2026, 11, 30),
                kind="input",
            ),
        ),
        assumptions=(
            "Prices stay flat over 36 months: no price trend was given.",
            "A node bought now sells for 14 % of its price after 36 months (range 5 % to 25 %).",
            "Prefill on H100 in fp8 reaches 52 % of peak: no measured run; taken from bf16 runs.",
        ),
        limitations=(
            "Quality is not judged: that gpt-4.1-mini answers as well as Qwen3 Coder 30B is the user's statement.",
            "Every month has 730 hours and every week the same shape.",
        ),
        risks=(
            Risk(
                name="Demand grows faster than 3 % a month",
                text="From 4.1 % the own nodes are full in month 19.",
                mitigation="Re-plan each quarter; on-demand nodes carry the excess meanwhile.",
            ),
            Risk(
                name="Delivery is late",
                text="Each month of delay costs $5,900 of rent.",
                mitigation="Order by 15 Dec 2026; keep the rental quota.",
            ),
        ),
        warnings=(
            "2 prices are older than their limit and were allowed by --allow-stale: "
            "4x L40S server (274 days; 365 allowed), 8x MI300X (273 days; 90 allowed).",
            "The latency of gpt-4.1-mini by OpenAI is not proven; `api_unproven: accept` was set by the user.",
        ),
        resolved_workload={
            "plan": {"start": "2026-12", "horizon_months": H, "as_of": "2026-11-30"},
            "workloads": {chat: {"llm": "llama_3.3_70b_instruct"}},
        },
        data={"gpus": {"l40s_48gb": {"name": "NVIDIA L40S"}}},
        problem={
            "pools": [{"id": own, "kind": "own", "gpus_per_node_count": 4}, {"id": rent, "kind": "on_demand", "gpus_per_node_count": 2}],
            "candidates": [
                {"id": k_own, "pool": own, "gpus_count": 4, "req_per_s_by_workload": {chat: mu[k_own]}},
                {"id": k_rent, "pool": rent, "gpus_count": 2, "req_per_s_by_workload": {chat: mu[k_rent]}},
                {"id": k_night, "pool": own, "gpus_count": 2, "req_per_s_by_workload": {night: mu[k_night]}},
            ],
            "apis": [{"id": api}],
            "workloads": [
                {
                    "id": w,
                    "mean_req_per_s": [[s.mean_req_per_s[w] * g for s in slices] for g in growth],
                    "peak_req_per_s": [[s.peak_req_per_s[w] * g for s in slices] for g in growth],
                }
                for w in (chat, code, night)
            ],
        },
        extensions={"conclusion": named(7, "Approved by the platform group for the office rack.")} if names else {},
        command="planner solve workloads/team.yaml --prices 2026-11-30 --allow-stale --out out",
        run=Run(started_at=datetime(2026, 11, 30, 9, 30, tzinfo=UTC), solve_seconds=2.31, total_seconds=4.9, planner_version="0.1.0"),
    )


def hostile_plan() -> Plan:
    """Return the plan with hostile names wherever a user may name something."""
    return sample_plan(HOSTILE)
