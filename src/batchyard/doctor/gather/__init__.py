"""Asks AWS, read-only, and makes facts of its answers. What cannot be asked is a ``Missing`` that says why."""
