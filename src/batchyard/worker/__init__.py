"""The worker, which runs the commands of a child in a container on AWS Batch (docs/worker.md).

It needs Python 3.10, its standard library and boto3. Of batchyard it imports only ``blocks``,
``shard``, ``child_patterns``, ``s3_layout`` and the package ``sampling``.
"""
