"""Findings about jobs that failed: one file for a cause, listed in table.py."""
