"""The command line: one file a command; flags in, one call, what came of it printed."""
