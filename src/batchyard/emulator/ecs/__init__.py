"""ECS on localhost: task definitions, tasks that run, container instances and services."""
