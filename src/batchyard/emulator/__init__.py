"""AWS Batch on localhost: the API of AWS Batch and CloudWatch Logs over the embedded engine, moto for all the rest."""
