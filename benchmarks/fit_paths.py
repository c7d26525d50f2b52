"""Fit what an all-reduce costs on the ways over PCIe that `nvidia-smi topo -m` names.

    python benchmarks/fit_paths.py allreduce_latency.csv

reads the columns system, n_gpus, message_bytes, latency_us and takes the faster library at each size. The measurements
name a number of GPUs and no path. Taken: two GPUs share a switch (PIX, PXB), four a socket (PHB, NODE), eight cross
sockets (SYS). Bus rate: median of the messages from 8 MiB on. Latency: median of those up to 8 KiB, of two and of eight
GPUs. Prints the figures of `hardware/interconnect.yaml`, `pcie_paths`, and their median error over every size.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from statistics import median

SYSTEMS = {"l40s": ("pcie_gen4", 32.0), "rtx_pro_6000_server": ("pcie_gen5", 64.0)}
PATHS = {2: "switch", 4: "bridge", 8: "socket"}
SMALL_BYTES, LARGE_BYTES = 8192, 8 * 2**20


def fastest(path: Path) -> dict[tuple[str, int, int], float]:
    """Return (system, GPUs, message bytes) → the least latency (s)."""
    found: dict[tuple[str, int, int], float] = {}
    with path.open(newline="", encoding="utf-8") as stream:
        for row in csv.DictReader(stream):
            key = (row["system"], int(row["n_gpus"]), int(row["message_bytes"]))
            found[key] = min(float(row["latency_us"]) / 1e6, found.get(key, float("inf")))
    return found


def main() -> None:
    """Print one line a path."""
    measured = fastest(Path(sys.argv[1]))
    for system, (name, nominal) in SYSTEMS.items():
        at = {n: {m: s for (of, count, m), s in measured.items() if of == system and count == n} for n in PATHS}
        bus = {n: median(2 * (n - 1) / n * m / s for m, s in at[n].items() if m >= LARGE_BYTES) for n in PATHS}
        first, last = (median(s for m, s in at[n].items() if m <= SMALL_BYTES) for n in (2, 8))
        peer = (last - first) / 6
        base = first - peer
        for n, path in PATHS.items():
            errors = [abs((base + peer * (n - 1) + 2 * (n - 1) / n * m / bus[n]) / s - 1) for m, s in at[n].items()]
            print(
                f"{name}_{path}: base_latency_us {base * 1e6:.2f}, peer_latency_us {peer * 1e6:.2f}, bus_gb_per_s {bus[n] / 1e9:.3g}, "
                f"nominal_gb_per_s {nominal:g}, row_count {len(errors)}, spread_frac {median(errors):.3f}"
            )


if __name__ == "__main__":
    main()
