"""The integer program: data, constraints, costs, and the one place that talks to a solver."""
