"""The AWS engine: a plan's jobs as AWS Batch's, and back."""
