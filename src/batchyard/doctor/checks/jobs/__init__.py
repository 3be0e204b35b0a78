"""Findings about a job that waits, apart from its size and its host."""
