"""Findings about instances that AWS refuses to launch: quotas, capacity, prices, templates."""
