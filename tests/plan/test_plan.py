"""What holds for every plan, and what each definition does to one: small real files through `make_plan`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from plan_inputs import CHAT, FILES, document, file_of, own_now, rented, with_api, written

from planner.candidates.asks import is_as_strict
from planner.candidates.build import Prepared
from planner.candidates.supply import residual_curve
from planner.catalog import Catalog
from planner.errors import AnswerIsNo, InputError
from planner.finance import residual_frac
from planner.milp import prune, solve
from planner.physics.serving import Targets
from planner.plan import Options, make_plan
from planner.plan.make import reprice_difference
from planner.readers.workload_file import load_workload
from planner.report.plan_file import plan_json
from planner.schema.export import json_schema
from planner.schema.plan import Alternative, Plan
from planner.schema.problem import Solution

PlanOf = Callable[[str], Plan]
PreparedOf = Callable[[dict[str, Any]], Prepared]
ALL = pytest.mark.parametrize("name", FILES)


def beside(plan: Plan, name: str) -> Alternative:
    return next(a for a in plan.alternatives if a.name == name)


def actions(plan: Plan) -> set[str]:
    return {d.action for d in plan.decisions}


def lines(plan: Plan) -> dict[str, float]:
    return {line.name: line.npv_usd for line in plan.cost_lines}


def cells(plan: Plan, workload: str) -> Iterator[tuple[int, int, dict[str, float]]]:
    for row in plan.dispatch:
        yield row.month, row.timeslice, row.shares.get(workload, {})


# --- every plan -----------------------------------------------------------------------------------------------------


@ALL
def test_cost_lines_add_up_to_the_objective(plan_of: PlanOf, name: str) -> None:
    plan = plan_of(name)
    assert sum(line.npv_usd for line in plan.cost_lines) == pytest.approx(plan.npv_cost_usd, rel=1e-9)
    assert sum(line.total_usd for line in plan.cost_lines) == pytest.approx(plan.tco_usd, rel=1e-9)
    for line in plan.cost_lines:
        assert sum(line.usd_by_month) == pytest.approx(line.total_usd, rel=1e-9)
        assert len(line.usd_by_month) == plan.horizon_months + 1
    for other in plan.alternatives:
        if other.npv_cost_usd is not None:
            assert sum(line.npv_usd for line in other.cost_lines) == pytest.approx(other.npv_cost_usd, rel=1e-9)
    assert sum(w.npv_usd for w in plan.workloads) <= plan.npv_cost_usd * (1 + 1e-9)


@ALL
def test_the_proof_is_stated_and_holds(plan_of: PlanOf, name: str) -> None:
    solver = plan_of(name).solver
    assert solver.status == "optimal" and solver.reproducible
    assert 0.0 <= solver.gap_frac <= solver.gap_asked_frac
    assert solver.npv_bound_usd <= plan_of(name).npv_cost_usd * (1 + 1e-9)


@ALL
def test_decisions_carry_the_capex_line_and_whole_numbers(plan_of: PlanOf, name: str) -> None:
    plan = plan_of(name)
    bought = sum(d.usd for d in plan.decisions if d.action == "buy")
    assert bought == pytest.approx(next((line.total_usd for line in plan.cost_lines if line.name == "capex"), 0.0), rel=1e-9)
    rent = sum(line.total_usd for line in plan.cost_lines if line.name.startswith(("rent_", "cold_", "commitment")))
    assert sum(d.usd for d in plan.decisions if d.action in ("rent", "reserve")) == pytest.approx(rent, rel=1e-9)
    calls = next((line.total_usd for line in plan.cost_lines if line.name == "api_tokens"), 0.0)
    assert sum(d.usd for d in plan.decisions if d.action == "call") == pytest.approx(calls, rel=1e-9)
    for row in json.loads(plan_json(plan))["dispatch"]:
        assert all(isinstance(n, int) and n > 0 for n in (*row["nodes"].values(), *row["replicas"].values()))


@ALL
def test_every_request_is_served_and_no_replica_is_overloaded(plan_of: PlanOf, name: str) -> None:
    plan = plan_of(name)
    problem = plan.problem
    for w in problem["workloads"]:
        if w["kind"] == "serving":
            for m, t, shares in cells(plan, w["id"]):
                asked = 1.0 if w["mean_req_per_s"][m][t] > 0 else 0.0
                assert sum(shares.values()) == pytest.approx(asked, abs=1e-6), (m, t)
    rates = {k["id"]: k["req_per_s_by_workload"] for k in problem["candidates"]}
    peaks = {w["id"]: w["peak_req_per_s"] for w in problem["workloads"] if w["kind"] == "serving"}
    for row in plan.dispatch:
        for k, mu in rates.items():
            used = sum(x.get(k, 0.0) * peaks[w][row.month][row.timeslice] / mu[w] for w, x in row.shares.items() if w in mu and w in peaks)
            assert used <= row.replicas.get(k, 0) + 1e-6


@ALL
def test_no_pool_uses_more_than_is_paid(plan_of: PlanOf, name: str) -> None:
    for usage in plan_of(name).usage:
        assert 0.0 <= usage.node_hours_used <= usage.node_hours_paid * (1 + 1e-9)
        assert 0.0 <= usage.utilization_frac <= 1.0 + 1e-9 and usage.peak_utilization_frac <= 1.0 + 1e-6


@ALL
def test_every_figure_leads_back_to_a_source(plan_of: PlanOf, name: str) -> None:
    plan = plan_of(name)
    for e in plan.evidence:
        assert e.source or (e.kind in ("input", "derived", "assumed") and (e.formula or e.note)), e.id
        assert e.kind != "derived" or e.formula or e.note, e.id
        assert e.kind == "input" or e.as_of is not None, e.id
    priced = {e.id for e in plan.evidence}
    for decision in plan.decisions:
        for row in decision.price_ids:
            assert any(key.startswith(f"price.{row}.") for key in priced), row
    assert len({e.id for e in plan.evidence}) == len(plan.evidence)


@ALL
def test_the_plan_file_is_what_its_schema_says(plan_of: PlanOf, name: str) -> None:
    schema = json_schema("plan")
    content = json.loads(plan_json(plan_of(name)))
    jsonschema.Draft202012Validator(schema).validate(content)
    del content["headline"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(schema).validate(content)


@pytest.mark.parametrize("name", ["small", "own_now", "everything_allowed", "bridged", "two_classes", "due_in_a_day"])
def test_the_second_pricing_finds_what_is_changed(prepared_of: PreparedOf, name: str) -> None:
    """One node, purchase or call more than the objective was computed for must show."""
    problem, _ = prune(prepared_of(FILES[name]).problem)
    solution = solve(problem)
    assert isinstance(solution, Solution)
    assert reprice_difference(problem, solution) < 1e-9
    for table in ("nodes", "buy", "call"):
        entries = getattr(solution, table)
        reserved = {p.id for p in problem.pools if p.kind == "reserved"}
        for key in [k for k in entries if table != "nodes" or k[0] not in reserved][:1]:
            changed = replace(solution, **{table: entries | {key: entries[key] * 2}})
            assert reprice_difference(problem, changed) > 1e-4, (table, key)


# --- privacy and regions --------------------------------------------------------------------------------------------


def test_own_only_removes_rent_and_api_and_says_what_that_costs(plan_of: PlanOf) -> None:
    free, own = plan_of("everything_allowed"), plan_of("only_own")
    assert actions(free) == {"call"} and actions(own) == {"buy"}
    assert {s.kind for w in own.workloads for s in w.supplies} == {"own"}
    assert not {"rent_on_demand", "cold_starts", "api_tokens"} & set(lines(own))
    rule = beside(own, "no_privacy_rule")
    assert rule.npv_cost_usd is not None and rule.difference_usd is not None
    assert rule.difference_usd == pytest.approx(rule.npv_cost_usd - own.npv_cost_usd)
    assert rule.difference_usd < -10_000 and "less" in rule.reason
    assert "api_tokens" in {line.name for line in rule.cost_lines}, "freed of the rule, the same file calls the API"
    barred = [e for e in own.exclusions if "allows only own" in e.reason]
    assert {e.kind for e in barred} == {"privacy"}
    assert {"Every rented node", "Llama-3.1-8B-Instruct by DeepInfra"} <= {e.option for e in barred}
    assert not any(a.name == "no_privacy_rule" for a in free.alternatives)
    assert beside(own, "all_rent").npv_cost_usd is None and "privacy" in beside(own, "all_rent").reason
    same = beside(own, "all_own")
    assert same.npv_cost_usd == own.npv_cost_usd and same.difference_usd == 0.0, "a plan that only owns is the best all-own plan"


def test_api_only_is_the_reverse(plan_of: PlanOf) -> None:
    plan = plan_of("only_api")
    assert actions(plan) == {"call"} and set(lines(plan)) == {"api_tokens"}
    assert plan.usage == () and not plan.problem["pools"]
    assert beside(plan, "all_own").npv_cost_usd is None and "privacy" in beside(plan, "all_own").reason
    assert any("unproven" in text for text in plan.warnings)


def test_regions_move_prices_and_providers(plan_of: PlanOf, catalog: Catalog) -> None:
    anywhere, eu = plan_of("rented"), plan_of("rented_eu")
    snapshot, within = catalog.snapshot(date(2026, 11, 30)), catalog.places_within("eu")

    def places(plan: Plan) -> set[str | None]:
        return {snapshot.rent[row].region for d in plan.decisions for row in d.price_ids}

    assert all(place in within for place in places(eu)) and not places(anywhere) & set(within)
    assert {d.provider for d in anywhere.decisions} == {"AWS"} and {d.provider for d in eu.decisions} == {"Azure"}
    assert eu.npv_cost_usd > anywhere.npv_cost_usd
    cost = beside(eu, "no_privacy_rule").npv_cost_usd
    assert cost == pytest.approx(anywhere.npv_cost_usd, rel=2e-2)
    assert any(e.kind == "region" and "must stay in eu" in e.reason for e in eu.exclusions)


def test_an_attribute_that_is_not_stated_counts_as_not_met(catalog: Catalog) -> None:
    with pytest.raises(AnswerIsNo) as no:
        make_plan(file_of(with_api(["api"], privacy={"allow": ["api"], "require": ["no_training"]})), catalog)
    assert no.value.reason_code == "no_supply" and "require fewer attributes" in str(no.value)


# --- definitions ----------------------------------------------------------------------------------------------------


def test_lead_time_is_bridged_by_rent(plan_of: PlanOf) -> None:
    """0.6 months are ceil to 1: ordered and paid in month 0, rented over month 0, owned from month 1 on."""
    plan = plan_of("bridged")
    bought = next(d for d in plan.decisions if d.action == "buy")
    assert (bought.month, bought.in_service_month) == (0, 1)
    for m, _, shares in cells(plan, "chat"):
        assert all(k.startswith("own.") == (m >= 1) for k in shares), (m, shares)
    own = beside(plan, "all_own")
    assert own.npv_cost_usd is None and "start in month 1" in own.reason and "bridge" in own.reason
    steady = beside(plan, "all_own_steady")
    assert steady.npv_cost_usd is not None and "steady state" in steady.title


def test_nothing_serves_before_delivery(catalog: Catalog) -> None:
    content = own_now()
    content["nodes"]["l40s_x4"]["lead_months"] = 2
    with pytest.raises(AnswerIsNo) as no:
        make_plan(file_of(content), catalog)
    assert no.value.reason_code == "infeasible" and "start in month 2" in str(no.value)
    content["workloads"]["chat"]["start_month"] = 2
    plan = make_plan(file_of(content), catalog)
    assert actions(plan) == {"buy"} and beside(plan, "all_own").npv_cost_usd is not None


def test_a_workload_of_its_own_needs_its_own_bridge(catalog: Catalog) -> None:
    """Another workload may call an API; the private one still has nothing before its node arrives."""
    content = with_api(["own", "rent", "api"])
    content["nodes"]["l40s_x4"]["lead_months"] = 1
    content["workloads"]["private"] = CHAT | {"privacy": {"allow": ["own"]}}
    with pytest.raises(AnswerIsNo, match=r"nothing serves private before .* month 1") as no:
        make_plan(file_of(content), catalog)
    assert no.value.reason_code == "infeasible"


def test_residual_is_for_nodes_bought_by_their_age_at_the_end(plan_of: PlanOf, catalog: Catalog) -> None:
    """Three months old at the end: price × (first-day value, then straight to the first point of the curve)."""
    plan, node = plan_of("own_now"), catalog.nodes["l40s_x4"]
    file, snapshot = file_of(FILES["own_now"]), catalog.snapshot(date(2026, 11, 30))
    points = residual_curve(file, catalog, snapshot, node)
    price = float(min(r.usd_per_node for r in snapshot.own.values() if r.node == "l40s_x4"))
    by_hand = -price * (points[0][1] + (points[1][1] - points[0][1]) * 3 / points[1][0])
    assert residual_frac(3, node.life_months, points) * -price == pytest.approx(by_hand)
    residual = next(line for line in plan.cost_lines if line.name == "residual")
    assert residual.usd_by_month[-1] == pytest.approx(by_hand) and not any(residual.usd_by_month[:-1])
    assert residual.npv_usd == pytest.approx(by_hand / 1.08 ** (3 / 12))
    sunk = plan_of("existing")
    assert actions(sunk) == {"keep"} and not {"capex", "residual"} & set(lines(sunk)) and lines(sunk)["energy"] > 0


def test_a_commitment_is_charged_to_its_end(plan_of: PlanOf) -> None:
    """Twelve months are paid in a plan of three: nine of them as the tail."""
    plan = plan_of("due_in_a_day")
    totals = {line.name: line.total_usd for line in plan.cost_lines}
    assert totals["commitment_tail"] == pytest.approx(3 * totals["rent_reserved_monthly"])
    assert all(d.until_month == 12 for d in plan.decisions)


def test_a_strict_and_a_loose_class_share_a_replica_at_the_class_targets(plan_of: PlanOf) -> None:
    assert is_as_strict(Targets(1.5, 0.06), Targets(6.0, 0.12)) and not is_as_strict(Targets(6.0, 0.12), Targets(1.5, 0.06))
    assert is_as_strict(Targets(1.5, 0.06), Targets()) and not is_as_strict(Targets(1.5), Targets(6.0, 0.12))
    plan = plan_of("two_classes")
    of = {k["id"]: k["req_per_s_by_workload"] for k in plan.problem["candidates"]}
    strict = {k: mu for k, mu in of.items() if ".t1500_p60." in k}
    loose = {k: mu for k, mu in of.items() if ".t6000_p120." in k}
    assert strict and not any("strict" in mu for mu in loose.values())
    for mu in strict.values():
        assert mu["loose"] == pytest.approx(mu["strict"])
    assert all(mu["loose"] >= strict[k.replace(".t6000_p120.", ".t1500_p60.")]["strict"] for k, mu in loose.items()
               if k.replace(".t6000_p120.", ".t1500_p60.") in strict)  # fmt: skip
    for row in plan.dispatch:
        (strict_on,), (loose_on,) = row.shares["strict"], row.shares["loose"]
        assert strict_on == loose_on and row.replicas == {strict_on: 1}


def test_survive_replica_and_node_raise_what_runs(plan_of: PlanOf) -> None:
    least = {name: max(sum(r.replicas.values()) for r in plan_of(name).dispatch) for name in ("own_now", "survive_replica", "survive_node")}
    nodes = {name: max(sum(r.nodes.values()) for r in plan_of(name).dispatch) for name in least}
    assert least["survive_replica"] == least["own_now"] + 1 and nodes == {"own_now": 1, "survive_replica": 1, "survive_node": 2}
    for plan in (plan_of("survive_replica"), plan_of("survive_node")):
        rates = {k["id"]: k["req_per_s_by_workload"]["chat"] for k in plan.problem["candidates"]}
        for row in plan.dispatch:
            left = sum(n * rates[k] for k, n in row.replicas.items()) - max(rates[k] for k in row.replicas)
            assert left >= plan.problem["workloads"][0]["peak_req_per_s"][row.month][row.timeslice] - 1e-6
    assert any("No spare" in r.name for r in plan_of("own_now").risks) and not any("No spare" in r.name for r in plan.risks)


def test_batch_with_an_idle_weekend_needs_weekday_capacity(plan_of: PlanOf) -> None:
    """Arrivals of 1.4 times the mean on five days: a day's deadline leaves the weekend Friday's work alone."""
    day, week = plan_of("due_in_a_day"), plan_of("due_in_a_week")
    assert day.npv_cost_usd > week.npv_cost_usd * 1.05

    def weekday_capacity(plan: Plan) -> float:
        rates = {k["id"]: k["req_per_s_by_workload"]["nightly"] for k in plan.problem["candidates"]}
        return min(
            sum(n * rates[k] for k, n in row.replicas.items())
            for row in plan.dispatch if max(plan.timeslices[row.timeslice].hours_of_week) < 120
        )  # fmt: skip

    mean = sum(h * r for h, r in zip(day.problem["hours_by_slice"], day.problem["workloads"][0]["mean_req_per_s"][0], strict=True)) / 730
    assert weekday_capacity(day) >= 1.4 * mean * 96 / 120 > 0
    for plan in (day, week):
        done = sum(sum(x.values()) * plan.timeslices[t].hours_per_month for m, t, x in cells(plan, "nightly") if m == 0)
        assert done == pytest.approx(730, rel=1e-6)


def test_a_plan_of_one_month(catalog: Catalog) -> None:
    content = own_now()
    content["plan"]["horizon_months"] = 1
    plan = make_plan(file_of(content), catalog)
    assert "over 1 month (" in plan.headline and len(plan.cost_lines[0].usd_by_month) == 2


def test_load_begins_in_its_start_month(plan_of: PlanOf) -> None:
    plan = plan_of("later")
    assert all(bool(shares) == (m >= 1) for m, _, shares in cells(plan, "chat") if m == 0 or shares)
    assert {d.month for d in plan.decisions} == {1} and {d.month_label for d in plan.decisions} == {"2027-01"}
    assert all(line.usd_by_month[0] == 0.0 for line in plan.cost_lines)


@pytest.mark.parametrize(
    ("place", "value", "told"),
    [
        (("plan", "carbon"), {"cap_t_per_year": 10}, "a cap on emissions is not planned yet"),
        (("providers",), {"aws": {"quotas": {"max_node_count": 2}}}, "provider quotas are not planned yet"),
        (("workloads", "tune"), {"kind": "finetune", "llm": "llama_3.1_8b", "method": "lora", "tokens_per_run": 1e6, "runs_per_month": 1,
                                 "privacy": {"allow": ["own"]}}, "fine-tuning runs are checked but not planned yet"),
        (("workloads", "chat", "tenants"), [{"name": "a", "max_context_tok": 4096, "max_concurrency": 4}], "tenants of one workload"),
        (("workloads", "chat", "max_provider_share_frac"), 0.5, "a largest share for one provider is not planned yet"),
        (("workloads", "chat", "load"), {"concurrency": 8, "kv_during_think": False}, "dropping KV while users think is not planned yet"),
        (("workloads", "chat", "load"), {"trace": "log.csv"}, "request logs are not read yet"),
        (("workloads", "chat", "availability"), {"survive": "node", "interruptible": True}, "cannot also promise to survive"),
    ],
)  # fmt: skip
def test_what_is_not_planned_is_refused_by_name(tmp_path: Path, catalog: Catalog, place: tuple[str, ...], value: Any, told: str) -> None:
    content = document()
    part = content
    for step in place[:-1]:
        part = part[step]
    part[place[-1]] = value
    path = written(tmp_path, content)
    with pytest.raises(InputError) as wrong:
        make_plan(load_workload(path), catalog)
    (fault,) = wrong.value.faults
    assert told in fault.what + fault.cure and fault.line is not None and fault.cure
    assert fault.place.split(".")[: len(place)] == list(place)[: len(fault.place.split("."))]


# --- two snapshots --------------------------------------------------------------------------------------------------


def test_one_file_under_two_snapshots(catalog: Catalog) -> None:
    """Each plan rests on the rows of its own snapshot with their own dates; the cost lines differ."""
    content = document(privacy={"allow": ["rent"]})
    content["plan"] |= {"supply": {"providers": ["aws"], "deals": ["on_demand"]}}
    del content["plan"]["prices"], content["plan"]["as_of"]
    plans = {
        day: make_plan(file_of(content), catalog, Options(prices=day, as_of=day)) for day in (date(2026, 1, 31), date(2026, 11, 30))
    }
    old, new = plans.values()
    assert lines(old) != lines(new) and old.npv_cost_usd != pytest.approx(new.npv_cost_usd, rel=1e-3)
    for day, plan in plans.items():
        snapshot = catalog.snapshot(day)
        dates = {e.id: e.as_of for e in plan.evidence if e.id.startswith("price.")}
        used = [snapshot.rent[row] for d in plan.decisions for row in d.price_ids]
        assert plan.prices_day == day and used
        for row in used:
            assert dates[f"price.{row.id}.usd_per_node_hour"] == row.retrieved_on <= day
        source = next(i for i in plan.inputs if i.role == "snapshot")
        assert source.as_of == day and source.sha256 == snapshot.digest
    assert max(e.as_of for e in new.evidence if e.id.startswith("price.") and e.as_of) > date(2026, 1, 31)


def test_old_prices_are_refused_or_said(catalog: Catalog) -> None:
    file = file_of(rented())
    later = Options(prices=date(2026, 1, 31), as_of=date(2026, 11, 30))
    with pytest.raises(AnswerIsNo) as no:
        make_plan(file, catalog, later)
    assert no.value.reason_code == "stale_prices" and "--allow-stale" in str(no.value) and "2026-11-30" in str(no.value)
    plan = make_plan(file, catalog, replace(later, allow_stale=True))
    assert any(text.startswith("Stale prices were allowed") and "2025-12-23" in text for text in plan.warnings)


def test_stale_rows_are_left_out_and_listed(catalog: Catalog) -> None:
    """Nebius's rows of 2025-10-01 are a year old; its other rows of 2026-10-10 stay."""
    content = rented()
    content["plan"]["supply"]["providers"] = ["nebius"]
    plan = make_plan(file_of(content), catalog)
    stale = [e for e in plan.exclusions if e.kind == "stale"]
    assert stale and all("2025-10-01, older than 90 days" in e.reason and "Nebius" in e.option for e in stale)
    used = {catalog.snapshot(None).rent[row].retrieved_on for d in plan.decisions for row in d.price_ids}
    assert used and min(used) >= date(2026, 9, 1)
    assert not any("Stale" in text for text in plan.warnings)


def test_prices_that_only_a_freed_rule_would_use_stop_no_plan(catalog: Catalog) -> None:
    content = own_now()
    content["plan"] |= {"as_of": "2026-12-31", "max_price_age_days": {"rent": 10}}
    content["plan"]["supply"] = {"buy": ["l40s_x4"], "providers": ["crusoe"]}
    plan = make_plan(file_of(content), catalog)
    assert actions(plan) == {"buy"}
    rule = beside(plan, "no_privacy_rule")
    assert rule.npv_cost_usd is None and "older than 10 days" in rule.reason


# --- the answer is no -----------------------------------------------------------------------------------------------


def no_of(content: dict[str, Any], catalog: Catalog) -> AnswerIsNo:
    with pytest.raises(AnswerIsNo) as no:
        make_plan(file_of(content), catalog)
    return no.value


def test_infeasible_latency_says_why_and_what_to_change(catalog: Catalog) -> None:
    no = no_of(document(latency={"ttft_p99_ms": 3000, "tpot_p99_ms": 1}), catalog)
    assert no.reason_code == "no_supply"
    assert "TPOT" in str(no) and "the promise is 1.0 ms" in str(no) and "relax the latency promise" in str(no)


def test_privacy_that_leaves_nothing_says_what_to_allow(catalog: Catalog) -> None:
    no = no_of(rented(privacy={"allow": ["rent"], "regions": ["uae"]}), catalog)
    assert no.reason_code == "no_supply" and "allow more regions" in str(no)


@pytest.mark.parametrize(
    ("make", "key", "budget_usd"),
    [(own_now, "capex_usd", 30_000), (own_now, "opex_usd_per_month", 200), (lambda: FILES["later"], "opex_usd_per_month", 300)],
)
def test_a_budget_too_small_says_by_how_much(
    catalog: Catalog, make: Callable[[], dict[str, Any]], key: str, budget_usd: int
) -> None:
    """The raise that is told is enough, and a dollar less (after rounding up) is not."""
    content = make()
    content = content | {"plan": content["plan"] | {"budgets": {key: budget_usd}}}
    no = no_of(content, catalog)
    assert no.reason_code == "infeasible" and f"raise budgets.{key} by $" in str(no)
    more = int(str(no).split(f"raise budgets.{key} by $")[1].split(" ")[0].rstrip(",;").replace(",", ""))
    content["plan"]["budgets"] = {key: budget_usd + more}
    plan = make_plan(file_of(content), catalog)
    if key == "capex_usd":
        assert sum(d.usd for d in plan.decisions if d.action == "buy") <= budget_usd + more
    content["plan"]["budgets"] = {key: budget_usd + more - 2}
    assert no_of(content, catalog).reason_code == "infeasible"


def test_two_limits_in_conflict_are_both_named(catalog: Catalog) -> None:
    content = own_now()
    content["plan"]["budgets"] = {"capex_usd": 30_000}
    content["sites"]["rack"]["power_limit_kw"] = 0.5
    text = str(no_of(content, catalog))
    assert "budgets.capex_usd" in text and "sites.rack.power_limit_kw" in text


def test_the_shipped_team_is_prepared_whole(prepared_of: PreparedOf, catalog: Catalog) -> None:
    from planner.candidates.build import prepare
    from planner.catalog import data_root

    file = load_workload(data_root() / "workloads" / "team.yaml")
    assert file.plan.as_of is not None and file.plan.prices is not None
    found = prepare(file, catalog, catalog.snapshot(file.plan.prices), file.plan.as_of)
    assert set(found.workloads) == {"support_chat", "code_assistant", "nightly_summaries"}
    for name in found.workloads:
        assert any(name in c.data.req_per_s_by_workload for c in found.candidates.values()), name
    assert {p.data.kind for p in found.pools.values()} >= {"own", "on_demand"} and found.offers
