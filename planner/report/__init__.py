"""A plan as people read it: HTML, PDF, Markdown and terminal text."""
