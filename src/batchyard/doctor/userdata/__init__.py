"""User data, examined as text: what a node would do at boot. Pure."""
