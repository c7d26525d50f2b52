"""Print how `planner --help` compares with importing click: the ratio of their median whole-process times.

`python benchmarks/startup.py [RUNS]`; the aim is a ratio of at most 2.5.
"""

import statistics
import subprocess
import sys
import time


def median_s(command: list[str], runs: int) -> float:
    """Return the median wall time of a command over some runs (s), one warm-up first."""
    times = []
    for i in range(runs + 1):
        began = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        if i:
            times.append(time.perf_counter() - began)
    return statistics.median(times)


def main() -> None:
    """Print both medians and their ratio."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    click_s = median_s([sys.executable, "-c", "import click"], runs)
    help_s = median_s(
        [sys.executable, "-c", "import sys; sys.argv = ['planner', '--help']; from capacity_planner import main; main()"], runs
    )
    print(f"import click {click_s * 1e3:.0f} ms, planner --help {help_s * 1e3:.0f} ms, ratio {help_s / click_s:.2f} (aim: at most 2.5)")


if __name__ == "__main__":
    main()
