"""The pydantic models of every file that planner reads or writes."""
