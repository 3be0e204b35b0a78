"""Container images for steps: Dockerfiles to start from, and building and pushing with Docker."""
