"""Follow shell scripts without running them: text, syntax tree, trace of commands. Pure."""
