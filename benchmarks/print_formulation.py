"""Print `docs/formulation.md` from the docstrings of the constraints and cost lines.

`python benchmarks/print_formulation.py > docs/formulation.md`
"""

from planner.milp.formulation import text

if __name__ == "__main__":
    print(text(), end="")
