"""The embedded engine: the scheduler, SQLite, and processes or containers on this machine."""
