"""The door to AWS: boto3's clients, paging, throttling, and its errors as sentences. One module a service."""
