"""What a reader of single rows cannot see: ids that lead nowhere, rows that contradict each other, prices out of all proportion."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import date, timedelta
from pathlib import Path

from planner.catalog import Catalog, Snapshot, shown_path
from planner.errors import Fault, did_you_mean
from planner.readers.prices_csv import lines_of
from planner.schema.prices import ApiRow, OperatingRow, OwnRow, PriceRow, RentRow

MIN_PEERS = 4
"""Other providers of the same thing that must be there before a price can be called out of proportion."""
MAX_ROBUST_Z = 6.0
"""Deviation from the other providers' median, in robust standard deviations of the logarithms, that a price may have."""
MIN_SPREAD: Mapping[str, float] = {"rent": math.log(1.35), "api": math.log(1.5)}
"""Robust standard deviation assumed at least, where peers agree to the cent: a rent must then lie within a factor of 6 of the
median (a node's price taken for a GPU's is 8 off), an API price within 11 (hosts of one model do differ ninefold)."""
MAD_TO_SIGMA = 1.4826
"""Median absolute deviation → standard deviation of a normal distribution."""
MAX_PURCHASE_RATIO = 4.0
"""Dearest over cheapest purchase price of one node."""
AGE_LIMITS_DAYS: Mapping[str, int] = {"rent": 90, "api": 90, "own": 365, "operating": 730}
"""Age of a row beyond which a plan refuses it, unless its workload file says otherwise."""


def check_snapshot(snapshot: Snapshot, catalog: Catalog) -> list[Fault]:
    """Return everything that cannot be true of a snapshot, in order of file and line; an empty list is a clean one.

    Found are: a folder named by another day than it was closed; rows later than that day; unknown nodes, accelerators,
    places and models; a row whose accelerator or count is not its node's; spot or reserved at or above the on-demand price
    of the same offer; cached, batch or long-prompt prices on the wrong side of the base price; prices out of all
    proportion to others of the same thing.
    """
    return _Check(snapshot, catalog).faults()


def aged_rows(snapshot: Snapshot, as_of: date, limits_days: Mapping[str, int] = AGE_LIMITS_DAYS) -> dict[str, tuple[PriceRow, ...]]:
    """Return, by kind (`rent`, `api`, `own`, `operating`), the rows older on `as_of` than their kind's limit, by their own dates."""
    tables: dict[str, Collection[PriceRow]] = {
        "rent": snapshot.rent.values(),
        "api": snapshot.api.values(),
        "own": snapshot.own.values(),
        "operating": snapshot.operating.values(),
    }
    return {
        kind: tuple(row for row in rows if row.retrieved_on < as_of - timedelta(days=limits_days[kind])) for kind, rows in tables.items()
    }


class _Check:
    def __init__(self, snapshot: Snapshot, catalog: Catalog) -> None:
        self.snapshot = snapshot
        self.catalog = catalog
        self.models = frozenset(catalog.llm_ids())
        self.places: dict[tuple[str, str], tuple[str, int]] = {}
        """(kind, id) → shown file and line; a user's file, read last, wins."""
        self.files: dict[str, str] = {}
        for path in snapshot.files:
            self.files[path.stem] = shown_path(path)
            if path.suffix == ".csv":
                self._locate(path)

    def _locate(self, path: Path) -> None:
        for name, line in lines_of(path).items():
            self.places[path.stem, name] = (shown_path(path), line)

    def faults(self) -> list[Fault]:
        found = [*self._dates(), *self._rent(), *self._api(), *self._own(), *self._operating()]
        return sorted(set(found), key=lambda f: (f.file, f.line or 0, f.place, f.what))

    def _fault(self, kind: str, row: PriceRow, column: str, what: str, cure: str) -> Fault:
        file, line = self.places.get((kind, row.id), (self.files.get(kind, kind), 0))
        return Fault(file, line or None, f"{row.id}.{column}", what, cure)

    def _tables(self) -> Iterator[tuple[str, PriceRow]]:
        held = self.snapshot
        for kind, table in (("rent", held.rent), ("api", held.api), ("own", held.own), ("operating", held.operating)):
            for row in table.values():
                yield kind, row

    def _dates(self) -> Iterator[Fault]:
        closed = self.snapshot.info.closed_on
        if closed != self.snapshot.day:
            what = f"closed on {closed}, but the folder is named {self.snapshot.day}"
            yield Fault(self.files.get("snapshot", "snapshot.yaml"), None, "closed_on", what, "name the folder by the day it was closed")
        for kind, row in self._tables():
            if row.retrieved_on > closed:
                what = f"{row.retrieved_on} is after {closed}, the day the snapshot was closed"
                yield self._fault(kind, row, "retrieved_on", what, "correct the date, or put the row into a newer snapshot")

    def _known(self, kind: str, row: PriceRow, column: str, name: str | None, known: Collection[str], where: str) -> Iterator[Fault]:
        if name is not None and name not in known:
            yield self._fault(kind, row, column, f"no '{name}' in {where}", did_you_mean(name, known))

    def _rent(self) -> Iterator[Fault]:
        on_demand: dict[tuple[str, str, str | None, str], RentRow] = {}
        for row in self.snapshot.rent.values():
            if row.term == "on_demand":
                on_demand[row.provider, row.node, row.region, row.instance] = row
        for row in self.snapshot.rent.values():
            yield from self._known("rent", row, "node", row.node, self.catalog.nodes, "hardware/nodes")
            yield from self._known("rent", row, "gpu", row.gpu, self.catalog.gpus, "hardware/gpus")
            yield from self._known("rent", row, "region", row.region, self.catalog.regions, "hardware/regions.yaml")
            node = self.catalog.nodes.get(row.node)
            if node is not None and node.gpu != row.gpu:
                what = f"'{row.gpu}' where node '{node.id}' has '{node.gpu}'"
                yield self._fault("rent", row, "gpu", what, "name the node of that accelerator")
            if node is not None and node.gpu_count != row.gpu_count:
                what = f"{row.gpu_count} where node '{node.id}' has {node.gpu_count}"
                yield self._fault("rent", row, "gpu_count", what, "name the node of that size")
            base = on_demand.get((row.provider, row.node, row.region, row.instance))
            if row.term != "on_demand" and base is not None and row.usd_per_node_hour >= base.usd_per_node_hour:
                what = f"{row.term} at {row.usd_per_node_hour} is not below the on-demand price {base.usd_per_node_hour}"
                yield self._fault("rent", row, "usd_per_node_hour", what, "correct it, or drop the row: nobody would take it")
        per_gpu: dict[tuple[str, ...], list[tuple[PriceRow, float]]] = defaultdict(list)
        for row in self.snapshot.rent.values():
            per_gpu[row.gpu, row.term].append((row, float(row.usd_per_node_hour) / row.gpu_count))
        yield from self._out_of_proportion("rent", "usd_per_node_hour", "USD per GPU-hour", per_gpu)

    def _api(self) -> Iterator[Fault]:
        per_model: dict[tuple[str, ...], list[tuple[PriceRow, float]]] = defaultdict(list)
        for row in self.snapshot.api.values():
            yield from self._known("api", row, "llm", row.llm, self.models, "workloads/models")
            for region in row.regions:
                yield from self._known("api", row, "regions", region, self.catalog.regions, "hardware/regions.yaml")
            yield from self._api_order(row)
            if row.llm is not None:
                per_model[row.llm, "input"].append((row, float(row.usd_per_mtok_input)))
                per_model[row.llm, "output"].append((row, float(row.usd_per_mtok_output)))
        for side in ("input", "output"):
            chosen = {key: rows for key, rows in per_model.items() if key[1] == side}
            yield from self._out_of_proportion("api", f"usd_per_mtok_{side}", "USD per million tokens", chosen)

    def _api_order(self, row: ApiRow) -> Iterator[Fault]:
        low_high = (
            ("usd_per_mtok_cached_input", row.usd_per_mtok_cached_input, row.usd_per_mtok_input, "a cached token dearer than a fresh one"),
            ("usd_per_mtok_batch_input", row.usd_per_mtok_batch_input, row.usd_per_mtok_input, "a batch price above the base price"),
            ("usd_per_mtok_batch_output", row.usd_per_mtok_batch_output, row.usd_per_mtok_output, "a batch price above the base price"),
            ("usd_per_mtok_tier_input", row.usd_per_mtok_input, row.usd_per_mtok_tier_input, "a long-prompt price below the base price"),
            ("usd_per_mtok_tier_output", row.usd_per_mtok_output, row.usd_per_mtok_tier_output, "a long-prompt price below the base price"),
        )
        for column, low, high, what in low_high:
            if low is not None and high is not None and low > high:
                yield self._fault("api", row, column, what, f"correct it, or leave it empty ({low} against {high})")

    def _own(self) -> Iterator[Fault]:
        by_node: dict[str, list[OwnRow]] = defaultdict(list)
        for row in self.snapshot.own.values():
            yield from self._known("own", row, "node", row.node, self.catalog.nodes, "hardware/nodes")
            by_node[row.node].append(row)
        for node, rows in by_node.items():
            cheapest, dearest = (pick(rows, key=lambda r: r.usd_per_node) for pick in (min, max))
            if dearest.usd_per_node > MAX_PURCHASE_RATIO * float(cheapest.usd_per_node):
                what = f"{dearest.usd_per_node} USD, where {cheapest.id} prices '{node}' at {cheapest.usd_per_node}"
                yield self._fault("own", dearest, "usd_per_node", what, "check for a slipped decimal point in either")

    def _operating(self) -> Iterator[Fault]:
        for row in self.snapshot.operating.values():
            yield from self._known("operating", row, "region", row.region, self.catalog.regions, "hardware/regions.yaml")
            if row.category == "residual_value":
                yield from self._residual(row)
            if row.category == "pue" and row.value < 1:
                yield self._fault("operating", row, "value", f"a PUE of {row.value}", "facility over IT power is at least 1")

    def _residual(self, row: OperatingRow) -> Iterator[Fault]:
        if row.age_months is None:
            yield self._fault("operating", row, "age_months", "a residual value without an age", "add age_months")
        if row.value > 1:
            yield self._fault("operating", row, "value", f"{row.value} is no share", "write a share of the purchase price between 0 and 1")

    def _out_of_proportion(
        self, kind: str, column: str, unit: str, groups: Mapping[tuple[str, ...], Sequence[tuple[PriceRow, float]]]
    ) -> Iterator[Fault]:
        for group, rows in groups.items():
            voices: dict[str, list[float]] = defaultdict(list)
            for row, price in rows:
                voices[row.id.split(".")[0]].append(math.log(price))
            of_provider = {provider: statistics.median(logs) for provider, logs in voices.items()}
            for row, price in rows:
                others = [middle for provider, middle in of_provider.items() if provider != row.id.split(".")[0]]
                if len(others) < MIN_PEERS:
                    continue
                center = statistics.median(others)
                sigma = max(MIN_SPREAD[kind], MAD_TO_SIGMA * statistics.median(abs(other - center) for other in others))
                if abs(math.log(price) - center) / sigma > MAX_ROBUST_Z:
                    name = " ".join(group)
                    what = f"{price:.4g} {unit}, where the median of {len(others)} other providers for {name} is {math.exp(center):.4g}"
                    yield self._fault(kind, row, column, what, "check the decimal point, the count and whether it is per GPU or per node")
