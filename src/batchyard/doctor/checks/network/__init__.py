"""Findings about subnets, routes, security groups and endpoints."""
