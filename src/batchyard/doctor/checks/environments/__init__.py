"""Findings about the settings of a compute environment."""
