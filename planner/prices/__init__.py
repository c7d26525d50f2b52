"""Checks and listings of price snapshots."""
