"""Everything planner knows from files: shipped data with the user's folder laid over it, as frozen, checked objects."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from planner.errors import Fault, InputError, did_you_mean
from planner.readers.yaml_file import read_yaml, read_yaml_fast, validate
from planner.schema.efficiency import EfficiencyRow, LinkRow
from planner.schema.engine import EngineProfile
from planner.schema.hardware import Gpu, Node, Region
from planner.schema.interconnect import ChipMemoryRow, HostPathRow, NvlinkRow, PciePathRow
from planner.schema.llm import KvFormat, Llm, WeightFormat
from planner.schema.planning import PlanningFigure
from planner.schema.prices import ApiRow, OperatingRow, OwnRow, RentRow, SnapshotInfo

if TYPE_CHECKING:
    from planner.readers.checkpoint import Checkpoint

Row = TypeVar("Row", bound=BaseModel)
PRICE_FILES = ("rent.csv", "api.csv", "own.csv", "operating.csv")
OVERLAY_FOLDERS = ("hardware", "pricing", "workloads/models")
MAX_DATA_FILE_BYTES = 5_000_000


@cache
def data_root() -> Path:
    """Return the folder that holds the shipped `hardware/ pricing/ workloads/ templates/`: in the wheel, or in a checkout."""
    package = Path(__file__).resolve().parent
    for root in (package / "_data", package.parent):
        if (root / "hardware").is_dir() and (root / "templates").is_dir():
            return root
    raise InputError([Fault("", None, "installation", "the shipped data folders are missing", "reinstall the package")])


def shown_path(path: Path) -> str:
    """Return a path as it may be written into a plan: `package:hardware/…` for shipped data, else as given."""
    try:
        return "package:" + path.resolve().relative_to(data_root()).as_posix()
    except ValueError:
        return path.as_posix()


@dataclass(frozen=True)
class Snapshot:
    """One dated folder of prices, the user's overlay rows (which win by id) already laid over it."""

    day: date
    info: SnapshotInfo
    rent: Mapping[str, RentRow]
    api: Mapping[str, ApiRow]
    own: Mapping[str, OwnRow]
    operating: Mapping[str, OperatingRow]
    files: tuple[Path, ...]
    overlay_ids: frozenset[str] = frozenset()

    @cached_property
    def digest(self) -> str:
        """SHA-256 over the names and bytes of the files, in order of name."""
        return digest_of(self.files)


def digest_of(files: tuple[Path, ...]) -> str:
    """Return the SHA-256 of some files' names and bytes, in order of name: the same on every machine."""
    sha = hashlib.sha256()
    for path in sorted(files, key=lambda p: p.name):
        sha.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return sha.hexdigest()


@dataclass(frozen=True)
class Interconnect:
    """Links between accelerators, and the memories on their chips."""

    nvlinks: tuple[NvlinkRow, ...]
    pcie_paths: tuple[PciePathRow, ...]
    host_paths: tuple[HostPathRow, ...]
    chip_memories: tuple[ChipMemoryRow, ...]


@dataclass(frozen=True)
class Catalog:
    """Hardware, formats, engines, efficiencies, models and price snapshots. Models and snapshots are read when asked for."""

    roots: tuple[Path, ...]
    """The shipped folder first, then the user's: a later row with the same id wins."""
    gpus: Mapping[str, Gpu]
    nodes: Mapping[str, Node]
    regions: Mapping[str, Region]
    weight_formats: Mapping[str, WeightFormat]
    kv_formats: Mapping[str, KvFormat]
    engines: Mapping[str, EngineProfile]
    efficiency: tuple[EfficiencyRow, ...]
    links: tuple[LinkRow, ...]
    planning: Mapping[str, PlanningFigure]
    origin: Mapping[tuple[str, str], Path]
    """(kind, id) → the file a row came from."""
    _models: dict[str, Llm] = field(default_factory=dict, repr=False, compare=False)
    _snapshots: dict[date, Snapshot] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def model_files(self) -> Mapping[str, Path]:
        """Model id → its file; an overlay's file wins."""
        return {path.stem: path for root in self.roots for path in sorted((root / "workloads" / "models").glob("*.yaml"))}

    @cached_property
    def interconnect(self) -> Interconnect:
        """The rows of `hardware/interconnect.yaml`, an overlay's winning by id; faults of a file are `InputError`."""
        parsed: dict[Path, Any] = {}

        def rows(key: str, model: type[Row]) -> tuple[Row, ...]:
            found: dict[str, Row] = {}
            for root in self.roots:
                path = root / "hardware" / "interconnect.yaml"
                if path.is_file():
                    found |= {row.id: row for row in _read_list(path, model, key, parsed)}  # type: ignore[attr-defined]
            return tuple(found.values())

        return Interconnect(
            rows("nvlinks", NvlinkRow), rows("pcie_paths", PciePathRow), rows("host_paths", HostPathRow),
            rows("chip_memories", ChipMemoryRow),
        )

    def llm_ids(self) -> tuple[str, ...]:
        """Return the ids of every model known."""
        return tuple(sorted(self.model_files))

    def llm(self, name: str) -> Llm:
        """Return a model by id, or read it from a file, a folder or the Hub; an unknown name is an `InputError`."""
        if name in self._models:
            return self._models[name]
        path = self.model_files.get(name)
        if path is not None:
            model = _read_one(path, Llm)
            if model.id != name:
                raise InputError([Fault(shown_path(path), None, "id", f"'{model.id}' is not the file's name", f"write id: {name}")])
        elif (found := self.checkpoint(name)) is not None:
            model = found.llm
        else:
            cure = did_you_mean(name, self.model_files, "or give the path of a config.json, .gguf or .safetensors, or hub:org/name")
            raise InputError([Fault("", None, "llm", f"no model '{name}' in workloads/models", cure)])
        self._models[name] = model
        return model

    def checkpoint(self, name: str, assume: bool = False, weights: str | None = None) -> Checkpoint | None:
        """Return the model of a file, a folder, or `hub:org/name`, with its format and bytes; None where the name means none of them.

        With `assume` an unknown architecture is read as a plain decoder. `weights` names the format where the file's own cannot be
        read. Faults of the file or the Hub are `InputError`.
        """
        if name in self.model_files:
            return None
        from planner.readers.checkpoint import is_checkpoint_path, read_checkpoint

        if name.startswith("hub:"):
            from planner.readers.hub import read_hub

            return read_hub(name, self.weight_formats, assume, weights)
        return read_checkpoint(Path(name), self.weight_formats, assume, weights) if is_checkpoint_path(name) else None

    def weight_format(self, name: str) -> WeightFormat:
        """Return a weight format by id."""
        return pick(self.weight_formats, name, "weights", "hardware/formats.yaml")

    def kv_format(self, name: str) -> KvFormat:
        """Return a KV-cache format by id."""
        return pick(self.kv_formats, name, "kv_cache", "hardware/formats.yaml")

    def gpu(self, name: str) -> Gpu:
        """Return an accelerator by id."""
        return pick(self.gpus, name, "gpu", "hardware/gpus")

    def engine(self, name: str) -> EngineProfile:
        """Return the newest profile of an engine by its name (`vllm`) or a profile by its id."""
        if name in self.engines:
            return self.engines[name]
        of_engine = [profile for profile in self.engines.values() if profile.engine == name]
        if not of_engine:
            known = {*self.engines, *(profile.engine for profile in self.engines.values())}
            raise InputError([Fault("", None, "engine", f"no profile for engine '{name}'", did_you_mean(name, known))])
        return of_engine[-1]

    @cached_property
    def snapshot_days(self) -> tuple[date, ...]:
        """Days of the shipped and overlaid snapshots, oldest first."""
        days = set()
        for root in self.roots:
            for folder in (root / "pricing").glob("*/"):
                try:
                    days.add(date.fromisoformat(folder.name))
                except ValueError:
                    continue  # a folder of the user's that is not named by a day is no snapshot
        return tuple(sorted(days))

    def snapshot(self, day: date | None = None) -> Snapshot:
        """Return the snapshot of a day (the newest if none is named); an unknown day is an `InputError`."""
        if not self.snapshot_days:
            raise InputError([Fault("", None, "prices", "no price snapshot found", "add pricing/<date>/ or reinstall the package")])
        day = day or self.snapshot_days[-1]
        if day not in self.snapshot_days:
            known = ", ".join(map(str, self.snapshot_days))
            raise InputError([Fault("", None, "prices", f"no snapshot of {day}", f"known: {known}")])
        if day not in self._snapshots:
            self._snapshots[day] = self._read_snapshot(day)
        return self._snapshots[day]

    def _read_snapshot(self, day: date) -> Snapshot:
        from planner.readers.prices_csv import read_price_csv

        folders = [root / "pricing" / day.isoformat() for root in self.roots]
        folders = [folder for folder in folders if folder.is_dir()]
        tables: dict[str, dict[str, Any]] = {name: {} for name in PRICE_FILES}
        models: dict[str, type[BaseModel]] = dict(zip(PRICE_FILES, (RentRow, ApiRow, OwnRow, OperatingRow), strict=True))
        files: list[Path] = []
        overlay_ids: set[str] = set()
        info: SnapshotInfo | None = None
        for folder in folders:
            if (folder / "snapshot.yaml").is_file():
                info = _read_one(folder / "snapshot.yaml", SnapshotInfo)
                files.append(folder / "snapshot.yaml")
            for name in PRICE_FILES:
                path = folder / name
                if not path.is_file():
                    continue
                files.append(path)
                for row in read_price_csv(path, models[name], shown_path(path)):  # type: ignore[type-var]
                    key: str = row.id  # type: ignore[attr-defined]
                    tables[name][key] = row
                    if folder.parent.parent != data_root():
                        overlay_ids.add(key)
        if info is None:
            place = shown_path(folders[0])
            raise InputError([Fault(place, None, "snapshot.yaml", "missing", "add it: closed_on, currency, description")])
        rent, api, own, operating = (tables[name] for name in PRICE_FILES)
        return Snapshot(day, info, rent, api, own, operating, tuple(files), frozenset(overlay_ids))

    def places_within(self, code: str) -> frozenset[str]:
        """Return every region code that lies in `code`, itself included (`eu` → `eu`, `eu_west`, `westeurope`…)."""
        found = {code}
        while True:
            more = {r.id for r in self.regions.values() if r.id not in found and found.intersection(r.within)}
            if not more:
                return frozenset(found)
            found |= more


def pick(known: Mapping[str, Row], name: str, place: str, where: str) -> Row:
    """Return `known[name]`, or raise an `InputError` that names the nearest ids."""
    try:
        return known[name]
    except KeyError:
        raise InputError([Fault("", None, place, f"no '{name}' in {where}", did_you_mean(name, known))]) from None


def load_catalog(overlay: Path | None = None, without: frozenset[str] = frozenset()) -> Catalog:
    """Read the shipped data, then the overlay folder (laid out alike) over it.

    Without `overlay`, the current directory is one where it has `hardware/`, `pricing/` or `workloads/models/` of its own.
    Every fault of every file is reported at once. Kinds of rows in `without` are left unread, for a command that needs none of them.
    """
    roots = [data_root()]
    if overlay is not None:
        if not overlay.is_dir():
            raise InputError([Fault(overlay.as_posix(), None, "--catalog", "no such folder", "give a folder with hardware/ or pricing/")])
        roots.append(overlay)
    elif Path.cwd() != data_root() and any((Path.cwd() / name).is_dir() for name in OVERLAY_FOLDERS):
        roots.append(Path.cwd())
    faults: list[Fault] = []
    origin: dict[tuple[str, str], Path] = {}
    parsed: dict[Path, Any] = {}

    def rows(kind: str, pattern: str, model: type[Row], key: str | None = None) -> dict[str, Row]:
        found: dict[str, Row] = {}
        if kind in without:
            return found
        for root in roots:
            for path in sorted((root / "hardware").glob(pattern)):
                try:
                    for row in _read_list(path, model, key, parsed):
                        name: str = row.id  # type: ignore[attr-defined]
                        if origin.get((kind, name), path) == path and name in found:
                            raise InputError([Fault(shown_path(path), None, name, "this id stands twice", "keep one")])
                        if (kind, name) in origin and root is roots[0]:
                            other = shown_path(origin[kind, name])
                            raise InputError([Fault(shown_path(path), None, name, f"this id is also in {other}", "keep one")])
                        found[name] = row
                        origin[kind, name] = path
                except InputError as error:
                    faults.extend(error.faults)
        return found

    catalog = Catalog(
        roots=tuple(roots),
        gpus=rows("gpu", "gpus/*.yaml", Gpu),
        nodes=rows("node", "nodes/*.yaml", Node),
        regions=rows("region", "regions.yaml", Region),
        weight_formats=rows("weights", "formats.yaml", WeightFormat, "weights"),
        kv_formats=rows("kv_cache", "formats.yaml", KvFormat, "kv_cache"),
        engines=rows("engine", "engines.yaml", EngineProfile),
        efficiency=tuple(rows("efficiency", "efficiency/*.yaml", EfficiencyRow, "steps").values()),
        links=tuple(rows("link", "efficiency/*.yaml", LinkRow, "links").values()),
        planning=rows("planning", "planning.yaml", PlanningFigure),
        origin=origin,
    )
    for node in catalog.nodes.values():
        if node.gpu not in catalog.gpus:
            path = shown_path(origin["node", node.id])
            faults.append(Fault(path, None, f"{node.id}.gpu", f"no '{node.gpu}' in hardware/gpus", did_you_mean(node.gpu, catalog.gpus)))
    if faults:
        raise InputError(faults)
    return catalog


def _read_list(path: Path, model: type[Row], key: str | None, parsed: dict[Path, Any]) -> Iterator[Row]:
    """Yield the rows of a YAML list (under `key` where the file has several lists, which are parsed once)."""
    if path not in parsed:
        parsed[path] = read_yaml_fast(path, max_bytes=MAX_DATA_FILE_BYTES)
    data = parsed[path]
    items = (data or {}).get(key, []) if key is not None and isinstance(data, dict) else data
    if key is not None and not isinstance(data, dict):
        return
    try:
        yield from _adapter(model).validate_python(items)
    except ValidationError:
        document = read_yaml(path, max_bytes=MAX_DATA_FILE_BYTES)
        yield from validate(list[model], document, shown_path(path), under=key)  # type: ignore[valid-type]


@cache
def _adapter(model: type[Row]) -> TypeAdapter[list[Row]]:
    return TypeAdapter(list[model])  # type: ignore[valid-type]


def _read_one(path: Path, model: type[Row]) -> Row:
    try:
        return model.model_validate(read_yaml_fast(path, max_bytes=MAX_DATA_FILE_BYTES))
    except ValidationError:
        return validate(model, read_yaml(path, max_bytes=MAX_DATA_FILE_BYTES), shown_path(path))
