"""Print how long `planner size` over every accelerator takes, start-up included, against its aim and against starting Python.

`python benchmarks/size_speed.py [RUNS]`; the aim is 0.7 s. The best of the runs is printed beside the median, since other
work on the machine only ever adds.
"""

import os
import statistics
import subprocess
import sys
import time

AIM_S = 0.7
QUESTIONS = {
    "70B, BF16, table": ["--llm", "llama_3.1_70b", "--weights", "bf16"],
    "70B, BF16, JSON": ["--llm", "llama_3.1_70b", "--weights", "bf16", "--json"],
    "70B, Q4_K_M on every machine, table": ["--llm", "llama_3.3_70b_instruct", "--weights", "q4_k_m"],
    "671B, FP8, JSON": ["--llm", "deepseek_v3", "--weights", "fp8", "--json"],
}
LOAD = ["--kv-cache", "fp16", "--context", "8192", "--concurrency", "32"]
START = "import sys; from planner.cli.main import main; main()"


def times_s(command: list[str], runs: int) -> tuple[float, float, float]:
    """Return best and median wall time and best processor time of a command over some runs (s), one warm-up first."""
    wall, cpu = [], []
    for i in range(runs + 1):
        before, began = os.times(), time.perf_counter()
        done = subprocess.run(command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        if done.returncode not in (0, 1):
            raise SystemExit(done.stderr.decode())
        if i:
            after = os.times()
            wall.append(time.perf_counter() - began)
            cpu.append(after.children_user + after.children_system - before.children_user - before.children_system)
    return min(wall), statistics.median(wall), min(cpu)


def main() -> None:
    """Print one line a question."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    start, _, _ = times_s([sys.executable, "-c", "pass"], runs)
    print(f"starting Python alone: {start * 1e3:.0f} ms")
    for name, more in QUESTIONS.items():
        best, median, cpu = times_s([sys.executable, "-c", START, "size", *more, *LOAD], runs)
        print(
            f"{name}: best {best * 1e3:.0f} ms, median {median * 1e3:.0f} ms, processor {cpu * 1e3:.0f} ms: "
            f"{best / AIM_S:.2f} of the aim of {AIM_S:g} s, {best / start:.0f} times starting Python"
        )


if __name__ == "__main__":
    main()
