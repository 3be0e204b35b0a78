"""AWS Batch's rules, pure: values and decisions, no clock, no disk, no process, no boto3."""
