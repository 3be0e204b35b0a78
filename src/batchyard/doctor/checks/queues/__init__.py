"""Findings about a job queue."""
