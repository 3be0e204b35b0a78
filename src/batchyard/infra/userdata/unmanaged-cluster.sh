# Amazon's ECS images are made of its minimal one, which has no AWS client; those that image.yaml makes have it.
if ! command -v aws >/dev/null; then
    say "no AWS client on this image: installing it"
    timeout 300 dnf install -y -q awscli-2 || say "it could not be installed"
fi
# AWS Batch makes the cluster of an UNMANAGED environment and chooses its name: ask for it. The client itself
# tries again, and waits longer each time.
cluster=$(AWS_RETRY_MODE=standard AWS_MAX_ATTEMPTS=8 timeout 240 aws batch describe-compute-environments \
    --region "@AWS::Region@" --compute-environments "@ComputeEnvironment@" \
    --query 'computeEnvironments[0].ecsClusterArn' --output text 2>&1)
if [[ $cluster == arn:*:cluster/* ]]; then
    ecs_setting ECS_CLUSTER "${cluster##*/}"
else
    # Without a name the agent would join, or make, the cluster called default: the gate before ECS stays shut.
    mkdir -p /var/lib/batchyard
    printf 'no cluster is known for %s: %s\n' "@ComputeEnvironment@" "$cluster" >/var/lib/batchyard/not-ready
    say "$(</var/lib/batchyard/not-ready)"
fi
