"""A workload file is resolved, stamped with its digest, and refused with every fault at once: file, line, fault, cure."""

import hashlib
from datetime import date
from pathlib import Path

import pytest

from planner.errors import InputError
from planner.readers.workload_file import defaults_used, load_workload, parse_workload
from planner.schema.workload import Batch, Finetune, Serving, WorkloadFile

EXAMPLE = Path(__file__).parents[1] / "data" / "design_example.workload.yaml"
TEXT = EXAMPLE.read_text()
NAMED_OFFERS = "    api_equivalents: [openai.gpt_4.1_mini, mistral.small_3.2]\n"


def faults_after(*changes: tuple[str, str]) -> list[str]:
    text = TEXT
    for before, after in changes:
        assert before in text, before
        text = text.replace(before, after, 1)
    with pytest.raises(InputError) as caught:
        parse_workload(text.encode(), "team.yaml")
    return [str(fault) for fault in caught.value.faults]


def line_of(part: str) -> int:
    return next(n for n, line in enumerate(TEXT.splitlines(), 1) if part in line)


def test_the_design_example_in_full() -> None:
    loaded = load_workload(EXAMPLE)
    assert loaded.sha256 == hashlib.sha256(EXAMPLE.read_bytes()).hexdigest()
    assert loaded.path == str(EXAMPLE)
    assert (loaded.plan.start, loaded.plan.as_of, loaded.plan.budgets.capex_usd) == (date(2026, 12, 1), date(2026, 11, 30), 400_000)
    assert loaded.owned[0].in_service == date(2025, 3, 1)
    chat, batch, tuning = (loaded.workloads[n] for n in ("support_chat", "nightly_summaries", "monthly_finetune"))
    assert isinstance(chat, Serving)
    assert isinstance(batch, Batch)
    assert isinstance(tuning, Finetune)
    assert (chat.privacy.require, chat.load.growth_frac_per_month) == (("zero_retention", "no_training"), 0.03)
    assert batch.tokens_per_day.input == 400e6, "400e6 is a number, though YAML 1.1 reads it as text"
    assert tuning.privacy.allow == ("own", "rent"), "from plan.defaults"


def test_it_survives_a_trip_through_json() -> None:
    loaded = load_workload(EXAMPLE)
    assert WorkloadFile.model_validate_json(loaded.model_dump_json()) == loaded


def test_the_digest_and_file_cannot_be_written_by_the_user() -> None:
    assert "unknown key 'sha256'" in faults_after(("plan:", "sha256: abc\nplan:"))[0]


def test_every_fault_at_once_sorted_by_line() -> None:
    changes = {
        "horizon_months: 36": ("horizon_month: 36", "unknown key 'horizon_month'; did you mean 'horizon_months'?"),
        "Europe/Madrid": ("Europe/Madird", "no time zone 'Europe/Madird'; did you mean 'Europe/Madrid'"),
        "pue: 1.5": ("pue: high", "the text 'high' where a number is due"),
        "site: office_rack": ("site: ofice_rack", "no 'ofice_rack' in sites; did you mean 'office_rack'?"),
        "mean: 260": ("mean: -5", "-5 is out of range; accepted: more than 0 and at most 100,000,000"),
        "requests_per_day: 60000": ("requests_per_day: 1e30", "1e+30 is out of range; accepted: more than 0 and at most 10,000,000,000"),
        "office_hours": ("ofice_hours", "no profile 'ofice_hours'; did you mean 'office_hours'?"),
        "arrival_cv: 1.6": ("arrival_cv: '2'", "the text '2' where a number is due"),
        "kind: batch": ("kind: bach", "bach is none of serving, batch, finetune; did you mean 'batch'?"),
        "tokens_per_run: 200e6": ("tokens_per_run: .inf", "inf is out of range"),
    }
    found = faults_after(*[(before, after) for before, (after, _) in changes.items()])
    assert len(found) == len(changes), found
    for fault, (before, (_, text)) in zip(found, changes.items(), strict=True):
        assert fault.startswith(f"team.yaml:{line_of(before)} "), fault
        assert text in fault
        assert "\n" not in fault


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        ("support_chat:", "Support Chat:", "is not an id; use lower-case letters, digits, _ and .: 'support_chat'"),
        ("power_limit_kw: 24", "power_limit_kw: yes", "YAML reads yes as true where a number is due"),
        ("power_limit_kw: 24", "power_limit_kw: -1", "accepted: more than 0 and at most 1,000,000"),
        ("vat_frac: 0.21", "vat_frac: 21", "accepted: at least 0 and at most 1"),
        ("survive: replica", "survive: no", "YAML reads no as false; one of none, replica, node is due"),
        ("2025-03", "2025-13", "is not a month; write year-month, for example 2026-12"),
        ("prices: 2026-11-30", "prices: latest", "is not a date; write year-month-day"),
        ("start: 2026-12", "start: 1026-12", "out of range; accepted: 2020-01 to 2060-12"),
        ("horizon_months: 36", "horizon_months: 121", "accepted: at least 1 and at most 120"),
        ("method: qlora", "method: qlorra", "did you mean 'qlora'"),
        ("allow: [own, rent, api]", "allow: [own, rend, api]", "is none of own, rent, api; did you mean 'rent'?"),
        ("profile: office_hours", "profile: [1, 2]", "2 entries where at least 168 are due"),
        ("profile: office_hours", f"profile: [{', '.join(['0'] * 168)}]", "all 168 hours are zero"),
        ("profile: office_hours", f"profile: [{', '.join(['1'] * 167 + ['-1'])}]", "-1 is out of range; accepted: at least 0"),
        ("p99: 7000", "p99: 70000", "70000 tokens exceed max_context_tok (8192); raise max_context_tok, or lower p99"),
        ("max_context_tok: 8192", "max_context_tok: 2000", "exceed max_context_tok (2000)"),
        ("p99: 900", "p99: 100", "p99 (100) is below the mean (260)"),
        ("p50: 1200", "p50: 7100", "p50 (7100) is above p99 (7000)"),
        ("growth_frac_per_month: 0.03", "growth_frac_per_month: 0.9", "times the load by the last month"),
        ("growth_frac_per_month: 0.03", "growth_frac_per_month: -3", "accepted: at least -0.5 and at most 1"),
        ("requests_per_day: 60000", "trace: log.csv", "request logs are not read yet"),
        ("requests_per_day: 60000", "requests_per_day: 60000\n      concurrency: 3", "requests_per_day and concurrency are both given"),
        ("requests_per_day: 60000", "users: 500", "`users` needs active_frac"),
        ("latency: {ttft_p99_ms: 1500, tpot_p99_ms: 60}", "latency: {}", "no promise is given"),
        ("ttft_p99_ms: 1500", "e2e_p99_ms: 9", "accepted"),
        ("deadline_hours: 24", "deadline_hours: 200", "accepted: more than 0 and at most 168"),
        ("defaults: {privacy: {allow: [own, rent]}}", "defaults: {}", "'privacy' is missing; add `privacy:`"),
        ("llm: llama_3.1_8b", "llm: 8", "8 where text is due"),
        ("usd_per_unit: 1.08", "usd_per_unit: .nan", "nan is out of range"),
        ("count: 1", "count: 1.5", "1.5 is not a whole number"),
        ("runs_per_month: 2", "runs_per_month: 2\n    start_month: 36", "starts in month 36, after the plan's last month 35"),
        ("runs_per_month: 2", "runs_per_month: 2\n    start_month: 2026-11", "-1 is out of range; accepted: at least 0"),
    ],
)
def test_single_faults(before: str, after: str, text: str) -> None:
    if before == "ttft_p99_ms: 1500":
        with pytest.raises(InputError, match="through ttft_p99_ms"):
            parse_workload(TEXT.replace("requests_per_day: 60000", "concurrency: 9").replace(before, "e2e_p99_ms: 20000").encode(), "f")
        return
    found = faults_after((before, after))
    assert any(text in fault for fault in found), found
    assert all(";" in fault for fault in found), "each fault carries a cure"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ((("allow: [own, rent, api]", "allow: []"),), "0 entries where at least 1 are due"),
        ((("allow: [own, rent, api]", "allow: [own, own]"),), "a way to serve stands twice"),
        ((("      regions: [eu]", "      regions: []"),), "0 entries where at least 1 are due"),
        ((("allow: [own, rent, api]", "allow: [api]"), (NAMED_OFFERS, "")), "leaves nothing"),
        ((("runs_per_month: 2", "runs_per_month: 2\n    privacy: {allow: [api]}"),), "a finetune runs on own or rented nodes"),
    ],
)  # fmt: skip
def test_privacy_that_leaves_nothing(changes: tuple[tuple[str, str], ...], text: str) -> None:
    assert any(text in fault for fault in faults_after(*changes))


def test_own_alone_without_a_site_leaves_nothing() -> None:
    start = TEXT.index("sites:")
    text = TEXT[:start] + TEXT[TEXT.index("workloads:") :].replace("allow: [own, rent, api]", "allow: [own]", 1)
    with pytest.raises(InputError, match="only own is allowed and there is no site"):
        parse_workload(text.encode(), "f.yaml")


def test_defaults_merge_privacy_key_by_key() -> None:
    before = "defaults: {privacy: {allow: [own, rent]}}"
    text = TEXT.replace(before, "defaults: {llm: qwen3_32b, privacy: {allow: [own, rent], regions: [us]}}")
    text = text.replace("    llm: llama_3.1_8b\n", "")
    text = text.replace("runs_per_month: 2", "runs_per_month: 2\n    privacy: {require: [no_training]}")
    tuning = parse_workload(text.encode(), "f.yaml").workloads["monthly_finetune"]
    assert tuning.llm == "qwen3_32b"
    assert (tuning.privacy.allow, tuning.privacy.regions, tuning.privacy.require) == (("own", "rent"), ("us",), ("no_training",))


def test_a_fault_in_the_defaults_is_told_once() -> None:
    found = faults_after(("defaults: {privacy: {allow: [own, rent]}}", "defaults: {privacy: {allow: [own, rent], region: [eu]}}"))
    assert found == [f"team.yaml:{line_of('defaults:')} plan.defaults.privacy.region: unknown key 'region'; did you mean 'regions'?"]


def test_a_start_month_may_be_a_month() -> None:
    text = TEXT.replace("runs_per_month: 2", "runs_per_month: 2\n    start_month: 2027-03")
    assert parse_workload(text.encode(), "f.yaml").workloads["monthly_finetune"].start_month == 3


def test_one_word_stands_for_a_list_of_one() -> None:
    chat = parse_workload(TEXT.replace("weights: [fp8, awq_int4]", "weights: fp8").encode(), "f.yaml").workloads["support_chat"]
    assert isinstance(chat, Serving)
    assert chat.weights == ("fp8",)


def test_defaults_used_are_known() -> None:
    used = dict(defaults_used(load_workload(EXAMPLE)))
    assert used["workloads.nightly_summaries.profile"] == "flat"
    assert "plan.discount_frac_per_year" not in used, "it is written"
    assert "workloads.monthly_finetune.privacy" not in used, "the user wrote it in plan.defaults"


def test_a_large_file_and_a_bomb_are_one_line_each(tmp_path: Path) -> None:
    big = tmp_path / "big.yaml"
    with big.open("wb") as stream:
        stream.truncate(50_000_000)
    with pytest.raises(InputError) as caught:
        load_workload(big)
    assert [str(f) for f in caught.value.faults] == [
        f"{big}: the file is too large: 50,000,000 bytes, at most 1,000,000 bytes are read; see that it is a YAML file"
    ]
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "\n".join(
        f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)
    )
    with pytest.raises(InputError, match="once aliases are expanded"):
        parse_workload(bomb.encode(), "bomb.yaml")


@pytest.mark.parametrize(
    "text", ["[1, 2]", "just words", "plan: 1\nworkloads: {a: 3}", "workloads:\n", "plan:\n  defaults: 3\nworkloads: [1]"]
)
def test_files_of_the_wrong_form_are_refused(text: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_workload(text.encode(), "f.yaml")
    assert all(f.line and f.cure for f in caught.value.faults)
