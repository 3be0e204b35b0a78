"""Calls to AWS with boto3: clients, pages, throttling and errors. One module per service."""
