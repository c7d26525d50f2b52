"""A plan as other programs read it."""
