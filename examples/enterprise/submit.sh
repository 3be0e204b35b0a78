#!/bin/sh
# Submits the files given, one SubmitJob request each, in their order, and prints each job's name and id:
#   ./submit.sh jobs/genomics/*.json
# Where dependsOn has the name of a job that was submitted before in the same call, its id takes the name's place.
set -eu
tab=$(printf '\t')
ids=''  # a sed script, with a line for each job so far
for file in "$@"; do
  request=$(sed "$ids" "$file")
  job=$(aws batch submit-job --cli-input-json "$request" --query '[jobName, jobId]' --output text)
  echo "$job"
  ids="$ids
    s/\"jobId\": *\"${job%"$tab"*}\"/\"jobId\": \"${job#*"$tab"}\"/"
done
