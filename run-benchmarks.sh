#!/usr/bin/env bash
# CPU against GPU on the stack of gpu-batch-benchmark.yaml: submits both jobs, waits, fetches the results, compares them.
# Needs the aws command and this repository; to compare, Python 3.11 with click. See docs/benchmark.md.
set -euo pipefail

usage() {
    cat <<'TEXT'
usage: ./run-benchmarks.sh [STACK] [--out DIR] [--jobs CPU_JOB,GPU_JOB] [-- OPTIONS]

  STACK      the stack of gpu-batch-benchmark.yaml; default gpu-benchmark
  --out DIR  where the results go; default benchmark
  --jobs ... go on with two jobs that were submitted before: wait for them, fetch, compare
  OPTIONS    of `batchyard bench run`: --quick, --only NAME, --sizes N,N, --all-candidates, --seed N, --threads N, --memory AMOUNT,
             --plain-malloc

examples:
  ./run-benchmarks.sh -- --quick
  ./run-benchmarks.sh gpu-benchmark --out results -- --only matmul --sizes 1000,5000

exit codes: 0 measured and compared, 1 a job failed, 2 bad input, 3 the surroundings, 130 interrupted
TEXT
}

say() { printf '%s\n' "$*" >&2; }

# fail CODE MESSAGE...
fail() {
    local code=$1
    shift
    say "run-benchmarks: $*"
    exit "$code"
}

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly here
# The two jobs know from it that they belong together.
printf -v this_run '%s-%(%s)T' $$ -1
readonly this_run
stack='gpu-benchmark'
out=benchmark
jobs=
cpu_job=
gpu_job=
options=()
endpoint=${AWS_ENDPOINT_URL_BATCH:-${AWS_ENDPOINT_URL:-}}
# At an endpoint on this machine no GPU is there, and nothing is far away.
if [[ $endpoint =~ ^https?://(localhost|127\.[0-9.]+|\[::1\])(:|/|$) ]]; then is_here=yes poll_s=1; else is_here='' poll_s=15; fi

read_arguments() {
    local names=0
    while (($#)); do
        case $1 in
            -h | --help) usage && exit 0 ;;
            --out | --jobs)
                [[ -n ${2:-} ]] || fail 2 "$1 needs a value"
                if [[ $1 == --out ]]; then out=$2; else jobs=$2; fi
                shift
                ;;
            --)
                shift
                options=("$@")
                break
                ;;
            -*) fail 2 "there is no option $1; options of the benchmark come after --" ;;
            *)
                ((names++ == 0)) || fail 2 "one stack's name is enough; options of the benchmark come after --"
                stack=$1
                ;;
        esac
        shift
    done
    [[ -z $jobs || $jobs =~ ^[^,]+,[^,]+$ ]] || fail 2 "--jobs wants two ids with a comma between, not $jobs"
    check_options "${options[@]}"
}

# Before anything is sent: a job would start an instance only to say it.
check_options() {
    local word
    for word in "$@"; do
        [[ -n $word && $word != *[[:space:]]* ]] || fail 2 "an option may have no spaces in it: '$word'"
    done
    while (($#)); do
        case $1 in
            --device* | --out* | --instance-type* | --stand-in*) fail 2 "$1 is the jobs' own business" ;;
            --workload* | --images*) fail 2 "$1: files of your own are sent by \`batchyard bench submit\`" ;;
            --quick | --all-candidates | --plain-malloc | --only=* | --sizes=* | --seed=* | --threads=* | --memory=*) ;;
            --only | --sizes | --seed | --threads | --memory)
                [[ -n ${2:-} && $2 != --* ]] || fail 2 "$1 needs a value"
                shift
                ;;
            *)
                fail 2 "the benchmark has no option $1; it has --quick, --only, --sizes, --all-candidates, --seed," \
                    "--threads, --memory and --plain-malloc"
                ;;
        esac
        shift
    done
}

# ---- the stack

declare -A output

read_stack() {
    command -v aws >/dev/null || fail 3 "there is no aws command; see https://docs.aws.amazon.com/cli/latest/userguide/"
    local listed name value
    if ! listed=$(aws cloudformation describe-stacks --stack-name "$stack" --output text \
        --query 'Stacks[0].Outputs[].[OutputKey,OutputValue]' 2>&1); then
        if [[ $listed == *"does not exist"* ]]; then
            fail 2 "there is no stack $stack here; make it with: sam deploy --template-file gpu-batch-benchmark.yaml" \
                "--stack-name $stack --capabilities CAPABILITY_IAM; or with: batchyard deploy gpu-batch-benchmark" \
                "--env NAME, and the stack is then NAME-gpu-batch-benchmark"
        fi
        fail 3 "the stack $stack cannot be asked about: ${listed##*$'\n'}"
    fi
    while IFS=$'\t' read -r name value; do output[$name]=$value; done <<<"$listed"
    for name in Bucket CpuQueue GpuQueue CpuJobDefinition GpuJobDefinition LogGroup CodeLocation; do
        [[ -n ${output[$name]:-} ]] || fail 2 "the stack $stack has no output $name: is it of gpu-batch-benchmark.yaml?"
    done
}

# ---- the code

# What a job runs. Its container is thrown away, so what is missing is installed there; on this machine nothing is.
write_run_sh() {
    cat >"$1" <<'RUN'
set -eu
python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo 'the benchmark needs Python 3.11' >&2; exit 3; }
if [ -z "${BENCHMARK_STAND_IN:-}" ]; then
    python3 -c 'import click, numpy' 2>/dev/null || python3 -m pip install --quiet click numpy
    # The best that a CPU can do is to be compared with the best that a GPU can do.
    libraries='scipy opencv-python-headless numba pillow'
    if [ "$BENCHMARK_DEVICE" = gpu ]; then libraries="$libraries cupy-cuda12x[ctk]"; fi
    for library in $libraries; do
        python3 -m pip install --quiet "$library" || echo "going on without $library" >&2
    done
    # torch.compile needs a compiler.
    command -v g++ >/dev/null || { apt-get update -qq && apt-get install -qq -y --no-install-recommends g++; } >&2 ||
        echo 'going on without a compiler' >&2
fi
# The options are words: split at spaces, and never file names.
set -f
# shellcheck disable=SC2086
set -- --device "$BENCHMARK_DEVICE" --out "$BENCHMARK_OUT" ${BENCHMARK_ARGS:-} ${BENCHMARK_STAND_IN:+--stand-in}
PYTHONPATH=$PWD exec python3 -m batchyard bench run "$@"
RUN
}

send_code() {
    if [[ ${output[CodeLocation]} != s3://* ]]; then
        say "the code is in the images: ${output[CodeLocation]}"
        return
    fi
    write_run_sh "$scratch/run.sh"
    tar -C "$here/src" --exclude=__pycache__ -czf "$scratch/benchmark.tar.gz" batchyard -C "$scratch" run.sh
    aws s3 cp --only-show-errors "$scratch/benchmark.tar.gz" "${output[CodeLocation]}" ||
        fail 3 "the code could not be put to ${output[CodeLocation]}"
}

# ---- the jobs

# as a JSON string
quoted() {
    local text=${1//\\/\\\\}
    printf '"%s"' "${text//\"/\\\"}"
}

# variable NAME VALUE, for a job
variable() { printf '{"name": %s, "value": %s}' "$(quoted "$1")" "$(quoted "$2")"; }

# submit DEVICE QUEUE DEFINITION; prints the job's id
submit() {
    local words="${options[*]}" told sizes=''
    # A request that is interrupted may have been heard all the same, and nobody would know the job.
    trap '' INT TERM
    if [[ $is_here ]]; then
        # An endpoint may be small; a process does not see its limit, so it is told.
        [[ " $words " == *" --memory "* ]] || words="$words --memory 2GiB"
        sizes=', "resourceRequirements": [{"type": "VCPU", "value": "1"}, {"type": "MEMORY", "value": "3072"}]'
    fi
    told=$(variable BENCHMARK_ARGS "$words")
    [[ ! $is_here ]] || told+=", $(variable BENCHMARK_STAND_IN yes), $(variable BENCHMARK_RUN "$this_run")"
    aws batch submit-job --job-name "$stack-$1" --job-queue "$2" --job-definition "$3" --query jobId --output text \
        --container-overrides "{\"environment\": [$told]$sizes}" || fail 3 "the $1 job could not be submitted"
}

again() {
    local flag=
    [[ $out == benchmark ]] || flag=" --out $out"
    printf './run-benchmarks.sh %s%s --jobs %s,%s' "$stack" "$flag" "$cpu_job" "$gpu_job"
}

# There is nothing to compare one job with.
end_the_only_one() {
    if aws batch terminate-job --job-id "$cpu_job" --reason 'the other job was not submitted'; then
        say "the cpu job $cpu_job was ended: alone it is of no use"
    else
        say "the cpu job $cpu_job goes on; to end it: aws batch terminate-job --job-id $cpu_job --reason alone"
    fi
}

# shellcheck disable=SC2317 # a trap calls it
interrupted() {
    trap '' INT TERM
    if [[ -n $gpu_job ]]; then
        say "the jobs go on without us; to wait for them, fetch and compare: $(again)"
    elif [[ -n $cpu_job ]]; then
        end_the_only_one
    fi
    exit 130
}

submit_both() {
    cpu_job=$(submit cpu "${output[CpuQueue]}" "${output[CpuJobDefinition]}")
    say "submitted: cpu $cpu_job"
    if ! gpu_job=$(submit gpu "${output[GpuQueue]}" "${output[GpuJobDefinition]}"); then
        end_the_only_one
        exit 3
    fi
    say "submitted: gpu $gpu_job"
}

declare -A state

# Returns when both are over; says what changes, and why a job cannot start.
wait_for_both() {
    local listed job now why said=
    while :; do
        # What aws says is shown only if it failed: interrupted, it would say a lot before we can say our sentence.
        listed=$(aws batch describe-jobs --jobs "$cpu_job" "$gpu_job" --output text \
            --query 'jobs[].[jobId,status,statusReason]' 2>"$scratch/said") ||
            fail 3 "the jobs cannot be asked about: $(tail -n 1 "$scratch/said"); go on with: $(again)"
        while IFS=$'\t' read -r job now why; do
            [[ -n $job ]] || continue
            if [[ $now != "${state[$job]:-}" ]]; then
                state[$job]=$now
                say "$(device_of "$job"): $now"
            fi
            if [[ $now == RUNNABLE && $why != None && $why != "$said" ]]; then
                said=$why
                say "$(device_of "$job") cannot start: $why"
                [[ ! $is_here ]] || say "  the endpoint needs a GPU, if a pretended one: batchyard emulate --gpus 1"
            fi
        done <<<"$listed"
        [[ -n ${state[$cpu_job]:-} && -n ${state[$gpu_job]:-} ]] ||
            fail 2 "AWS Batch does not know these jobs: $cpu_job, $gpu_job (it forgets them after some days)"
        [[ ! "${state[*]}" =~ SUBMITTED|PENDING|RUNNABLE|STARTING|RUNNING ]] || { sleep "$poll_s" && continue; }
        trap - INT TERM
        return
    done
}

device_of() { if [[ $1 == "$cpu_job" ]]; then printf cpu; else printf gpu; fi; }

# why JOB: AWS's reason, the container's, and the end of the log
why() {
    local reason inside code stream lines
    IFS=$'\t' read -r reason inside code stream < <(aws batch describe-jobs --jobs "$1" --output text \
        --query 'jobs[0].[statusReason,container.reason,container.exitCode,container.logStreamName]')
    say "the $(device_of "$1") job failed: $reason; $([[ $inside == None ]] || printf '%s; ' "$inside")exit code $code"
    [[ $stream != None ]] || return 0
    lines=$(aws logs get-log-events --log-group-name "${output[LogGroup]}" --log-stream-name "$stream" --limit 20 \
        --query 'events[].[message]' --output text 2>/dev/null) || return 0
    while IFS= read -r line; do say "  | $line"; done <<<"$lines"
}

# ---- the results

# free_name PATH: PATH.old, or PATH.old2 and so on, which nothing has yet
free_name() {
    local number=2 name=$1.old
    while [[ -e $name ]]; do name=$1.old$((number++)); done
    printf '%s' "$name"
}

# fetch DEVICE JOB; what an earlier run has left is kept beside it
fetch() {
    local path
    for path in "$out"/"$1"-benchmark.{json,csv,txt} "$out"/stand-in-benchmark.{json,csv,txt}; do
        [[ $path == */stand-in-* && $1 == cpu || ! -e $path ]] || mv "$path" "$(free_name "$path")"
    done
    aws s3 cp --only-show-errors --recursive "s3://${output[Bucket]}/results/$1/$2/" "$out/" ||
        fail 3 "the results of the $1 job could not be fetched"
}

batchyard() {
    if python3 -c 'import sys, click; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        PYTHONPATH=$here/src${PYTHONPATH:+:$PYTHONPATH} python3 -m batchyard "$@"
    else
        command batchyard "$@"
    fi
}

compare() {
    local cpu=$out/cpu-benchmark.json gpu=$out/gpu-benchmark.json
    if [[ -e $out/stand-in-benchmark.json ]]; then
        gpu=$out/stand-in-benchmark.json
        say "no GPU was measured: a CPU stood in for it, and everything says so"
    fi
    if [[ ! -e $cpu || ! -e $gpu ]]; then
        fail 1 "there are not two results to compare; what there is lies in $out"
    fi
    if ! batchyard --version >/dev/null 2>&1; then
        fail 3 "to compare, Python 3.11 with click is needed: pip install click, then: $(again)"
    fi
    batchyard bench compare "$cpu" "$gpu" --prices --out "$out/benchmark-summary.txt"
    batchyard bench report "$out" >/dev/null
    say "written: $out/benchmark.html"
}

read_arguments "$@"
trap interrupted INT TERM
read_stack
mkdir -p "$out" || fail 3 "the folder $out cannot be made"
scratch=$(mktemp -d)
readonly scratch
trap 'rm -r "$scratch"' EXIT
if [[ -n $jobs ]]; then
    cpu_job=${jobs%,*} gpu_job=${jobs#*,}
else
    send_code
    submit_both
fi
wait_for_both
failed=0
for job in "$cpu_job" "$gpu_job"; do
    if [[ ${state[$job]} == FAILED ]]; then
        failed=1
        why "$job"
    fi
    fetch "$(device_of "$job")" "$job"
done
compare
# The stack of `batchyard deploy` has the template's name at its end; that of `sam deploy` is the name itself.
say "to delete the stack and what is in its bucket: batchyard destroy gpu-batch-benchmark --env ${stack%-gpu-batch-benchmark} --empty-buckets"
exit "$failed"
