"""Where jobs execute. ``base`` is the contract; each engine is a room of its own."""
