"""The embedded scheduler: its loop, its SQLite store, and the runners that start children.

The local engine and the emulator are built on this package.
"""
