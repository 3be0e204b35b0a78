"""Findings about IAM roles and instance profiles."""
