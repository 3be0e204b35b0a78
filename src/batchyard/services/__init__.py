"""Services: containers that ECS keeps up on the cluster of an environment, each a stack of its own.

service file -> service_keys (values) -> service_template (CloudFormation) -> operations
"""
