"""AWS Batch on localhost: its API over the embedded engine, and moto for the other services."""
