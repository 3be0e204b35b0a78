"""A node, looked at from inside: read-only answers -> facts -> findings."""
