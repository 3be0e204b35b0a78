"""CloudFormation on moto: AWS Batch's resources by the Batch API, and stacks that tell the truth. Imports moto."""
