#!/bin/sh
# Makes what platform/ describes, in the order in which one needs the other. It may be repeated: environments, policies
# and queues that are there are left as they are; a definition gets a new revision when its file has changed.
set -eu
cd "$(dirname "$0")/platform"

batch() { aws batch "$@" --output text; }

# create KIND FOUND FILE...: what each file describes, unless its name is among the names or ARNs that were found
create() {
  kind=$1
  found=$(echo "$2" | tr '\t' '\n' | sed 's|.*/||')
  shift 2
  for file; do
    if echo "$found" | grep -qxF "$(basename "$file" .json)"; then echo "$file: is there"; continue; fi
    batch "create-$kind" --cli-input-json "file://$file" > /dev/null
    echo "$file: created"
  done
}

environments=$(batch describe-compute-environments --query 'computeEnvironments[].computeEnvironmentName')
create compute-environment "$environments" environments/*.json

policies=$(batch list-scheduling-policies --query 'schedulingPolicies[].arn')
create scheduling-policy "$policies" policies/*.json

# AWS makes environments and queues in the background. A queue needs its environments, and a job its queue.
while batch describe-compute-environments --query 'computeEnvironments[].status' | grep -q CREATING; do sleep 2; done

queues=$(batch describe-job-queues --query 'jobQueues[].jobQueueName')
create job-queue "$queues" queues/*.json

for file in definitions/*.json; do
  name=$(basename "$file" .json)
  sum=$(cksum < "$file" | cut -d ' ' -f 1)
  newest='max_by(jobDefinitions, &revision).tags.cksum'
  found=$(batch describe-job-definitions --job-definition-name "$name" --status ACTIVE --query "$newest")
  if [ "$found" = "$sum" ]; then echo "$file: is there"; continue; fi
  revision=$(batch register-job-definition --cli-input-json "file://$file" --tags "cksum=$sum" --query revision)
  echo "$file: revision $revision"
done

while batch describe-job-queues --query 'jobQueues[].status' | grep -q CREATING; do sleep 2; done
