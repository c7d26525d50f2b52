"""The integer program: what to buy, rent and call, at the least discounted cost, with a proven bound."""

from planner.milp.dominance import Pruned
from planner.milp.prune import prune
from planner.milp.restrict import restrict
from planner.milp.solve import solve
from planner.milp.verify import SolutionRefused

__all__ = ["Pruned", "SolutionRefused", "prune", "restrict", "solve"]
