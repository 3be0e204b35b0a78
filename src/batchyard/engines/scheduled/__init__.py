"""Runs of the embedded scheduler in a process of ours: what their engines have in common."""
