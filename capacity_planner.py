"""Entry point of both commands, `planner` and `capacity-planner`, outside the package so that it survives a name clash."""

import os
import sys

RIVALS = {"llm_d_planner": "llm-d-planner", "planner": "planner (a search library of 2018)"}
"""Other distributions that install a package named `planner`: side by side, files of one overwrite the other's."""


def rival_beside(folder: str) -> str | None:
    """Return the name of another distribution that owns a `planner` package in this site-packages folder, if there is one."""
    for entry in os.listdir(folder):  # noqa: PTH208 - pathlib would double the time of `--help`
        name, _, rest = entry.partition("-")
        if rest.endswith(".dist-info") and name.lower() in RIVALS:
            return RIVALS[name.lower()]
    return None


def main() -> None:
    """Refuse to run beside a distribution that shares our package name; else hand over to the command line."""
    rival = rival_beside(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120 - the same
    if rival:
        sys.stderr.write(
            f"planner: this environment also holds {rival}, which installs a package and a command of the same name; "
            "install llm-capacity-planner alone, for example with 'pipx install llm-capacity-planner', and run 'capacity-planner'\n"
        )
        raise SystemExit(2)
    from planner.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
