"""Gather facts from AWS, read-only. A ``Missing`` fact names the reason."""
