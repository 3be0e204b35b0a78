"""Container images for steps: recipes to start from, building them with Docker, pushing them to a repository."""
