"""Memory, roofline, parallelism and serving as pure functions on a few numbers."""
