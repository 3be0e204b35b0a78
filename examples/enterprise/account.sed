# What is yours in the JSON files. Left of each line: what they have now. Right: put your own there, then apply it once:
#
#   sed -i.old -f account.sed platform/*/*.json
#
# The account, and the region of the policies' ARNs.
s/123456789012/123456789012/
s/us-east-1/us-east-1/

# Where instances live: a subnet with a way to the internet or to the endpoints of ECS, ECR and CloudWatch Logs.
s/subnet-0a1b2c3d4e5f60718/subnet-0a1b2c3d4e5f60718/
s/sg-0a1b2c3d4e5f60718/sg-0a1b2c3d4e5f60718/

# What instances may do (an instance profile), and what AWS Batch may do with those that are not its own (a role).
s/ecsInstanceRole/ecsInstanceRole/
s|service-role/AWSBatchServiceRole|service-role/AWSBatchServiceRole|
