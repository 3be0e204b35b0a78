# AWS Batch tells its own nodes which cluster is theirs; these belong to a cluster of ours.
ecs_setting ECS_CLUSTER "@Cluster@"
