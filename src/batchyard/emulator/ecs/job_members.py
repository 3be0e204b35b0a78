"""Members that only the containers of ECS have, in documents of the form of a job's."""

#: Id of the ECS task.
TASK_ID = "_ecs_task_id"
#: Name of each container of the task -> the number of its job in the store.
SIBLINGS = "_ecs_siblings"
#: What the environment variables of the container need: paths, role and launch type.
METADATA = "_ecs_metadata"
