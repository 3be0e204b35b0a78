"""The embedded scheduler at work: the loop, its SQLite store, and the runners that start children.

An engine without a queue of its own is built on this package, and so is the emulator.
"""
