"""What may serve what: pools, offers, variants and candidates, filtered and priced before the solver is asked."""

from planner.candidates.build import Candidate, Prepared, prepare

__all__ = ["Candidate", "Prepared", "prepare"]
