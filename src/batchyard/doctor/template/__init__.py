"""Templates, examined as text: CloudFormation, SAM, and Terraform plans. Pure."""
