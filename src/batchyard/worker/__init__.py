"""What runs inside a container on AWS Batch: a child's commands, its files, its success records (docs/worker.md).

Python 3.10, its standard library and boto3; of ours only ``batchyard.shard`` and ``batchyard.s3_layout``.
"""
