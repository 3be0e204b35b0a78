"""Findings about instances that do not become hosts of the ECS cluster."""
