#!/bin/bash
# After Docker, before ECS: does a container see as many GPUs as the node has? ECS starts only if so; why not is
# written for the doctor, and to the console, which can be read after the node has gone.
set -uo pipefail

readonly report=/var/lib/batchyard/gpu-check.json
# Why the user data holds the node back, where it does.
readonly not_ready=/var/lib/batchyard/not-ready
readonly image=batchyard-gpu-check:local

# verdict OK STAGE REASON; OK is true or false, as JSON spells them
verdict() {
    mkdir -p "${report%/*}"
    python3 - "$@" >"$report" <<'PYTHON'
import datetime, json, sys

ok, stage, reason = sys.argv[1:]
now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
print(json.dumps({"ok": ok == "true", "stage": stage, "reason": reason[-2000:], "time": now}))
PYTHON
    printf '%s batchyard: gpu check: ok=%s, %s: %s\n' "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "${@//$'\n'/; }" |
        tee -a /var/log/batchyard-node.log
    # Poweroff follows a failure at once.
    sync -f "$report"
    [[ $1 == true ]]
    exit
}

# An image of this node's own files, so that none is pulled: bash, and what it and nvidia-smi are linked with.
# nvidia-smi itself and the driver's libraries are put into the container by the runtime.
make_image() {
    local files
    mapfile -t files < <(ldd /bin/bash "$(command -v nvidia-smi)" 2>/dev/null | grep -o '/[^ :)]*' | grep -v nvidia | sort -u)
    python3 -c '
import sys, tarfile
with tarfile.open(fileobj=sys.stdout.buffer, mode="w|", dereference=True) as tar:
    for path in sys.argv[1:]:
        tar.add(path, path.lstrip("/"))
' "${files[@]}" |
        docker import --change 'ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=utility' - "$image"
}

# Inside the container, with nothing but bash: the devices, then what nvidia-smi says, then its exit code.
# shellcheck disable=SC2016  # for the container's bash
readonly look='for d in /dev/nvidia[0-9]*; do [[ -c $d ]] && echo "device $d"; done; nvidia-smi -L; echo "exit $?"'

[[ -s $not_ready ]] && verdict false user-data "$(<"$not_ready")"
on_host=$(timeout 60 nvidia-smi -L 2>&1) || verdict false driver "nvidia-smi fails on the node: $on_host"
gpus=$(grep -c '^GPU ' <<<"$on_host")
((gpus > 0)) || verdict false driver "nvidia-smi lists no GPU on the node: $on_host"

said=$(timeout 60 docker version 2>&1) || verdict false docker "Docker does not answer: $said"
said=$(make_image 2>&1) || verdict false image "the test's image cannot be made: $said"
seen=$(timeout 120 docker run --rm --network none "$image" /bin/bash -c "$look" 2>&1)
code=$?
docker image rm "$image" >/dev/null 2>&1
((code == 0)) || verdict false container "a container with a GPU does not run (exit $code): $seen"

devices=$(grep -c '^device ' <<<"$seen")
((devices >= gpus)) || verdict false container "a container sees $devices of $gpus GPUs: $seen"
case $seen in
    *"exit 0") verdict true container "a container sees $devices of $gpus GPUs" ;;
    # Not the GPU's fault: this image may lack a library that nvidia-smi, or NVML, is linked with.
    *"exit "12[67] | *"exit 12") verdict true container "$devices devices are there, nvidia-smi could not be run: $seen" ;;
    *) verdict false container "nvidia-smi fails in a container: $seen" ;;
esac
