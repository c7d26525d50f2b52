"""A solution as a plan: decisions, costs, alternatives, break-even, evidence and limitations."""

from planner.plan.make import Options, make_plan

__all__ = ["Options", "make_plan"]
