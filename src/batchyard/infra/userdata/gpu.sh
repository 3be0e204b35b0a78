gpu_list() { timeout 60 nvidia-smi -L 2>&1; }

# The driver can miss the device when both come up at once; the modules are loaded anew, once.
verify_driver() {
    local found
    if found=$(gpu_list); then say "driver: $found"; return; fi
    say "nvidia-smi fails: $found; loading the modules anew"
    timeout 30 systemctl stop nvidia-persistenced.service 2>/dev/null
    modprobe -r nvidia_uvm nvidia_drm nvidia_modeset nvidia 2>&1 | tee -a "$node_log"
    modprobe nvidia && modprobe nvidia_uvm
    if found=$(gpu_list); then say "driver, after loading anew: $found"; return; fi
    say "nvidia-smi still fails: $found; batchyard-gpu-check.service decides about this node"
}

# An image may give dockerd its runtimes as flags: then they must not be in daemon.json too, or dockerd does not start.
readonly runtimes_dir=/etc/docker-runtimes.d
flag() { grep -qs -e "--add-runtime$1" /etc/sysconfig/docker /{etc,usr/lib,lib}/systemd/system/docker.service{,.d/*.conf}; }

# Where nvidia is, or is to be, registered: flag, file, or nothing where it cannot be.
registration() {
    if [[ -e $runtimes_dir/nvidia ]] || flag '[= ]nvidia'; then
        echo flag
    elif compgen -G "$runtimes_dir/*" >/dev/null; then
        # shellcheck disable=SC2016  # for the script that it writes
        printf '#!/bin/sh\nexec nvidia-container-runtime "$@"\n' >"$runtimes_dir/nvidia"
        chmod 755 "$runtimes_dir/nvidia"
        echo flag
    elif ! flag ''; then
        echo file
    fi
}

# Merges into daemon.json, and says "changed" where that made a difference. $1: where to register the runtime.
merge_daemon_json() {
    python3 - /etc/docker/daemon.json "$1" <<'PYTHON'
import json, os, sys

path, register = sys.argv[1:]
before = {}
if os.path.exists(path):
    with open(path) as file:
        before = json.loads(file.read() or "{}")
after = {**before, "default-runtime": "nvidia"}
runtimes = before.get("runtimes", {})
if register == "file" and "nvidia" not in runtimes:
    after["runtimes"] = {**runtimes, "nvidia": {"path": "nvidia-container-runtime", "runtimeArgs": []}}
if after != before:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path + ".new", "w") as file:
        json.dump(after, file, indent=2)
    os.replace(path + ".new", path)
    print("changed")
PYTHON
}

default_runtime() {
    local register merged
    if ! command -v nvidia-container-runtime >/dev/null; then
        say "no nvidia-container-runtime on this image: Docker is left as it is"
    elif register=$(registration) && [[ -z $register ]]; then
        say "dockerd has other runtimes as flags, and nvidia not among them: Docker is left as it is"
    elif ! merged=$(merge_daemon_json "$register" 2>&1); then
        say "daemon.json is left as it is: ${merged##*$'\n'}"
    elif [[ $merged == changed ]]; then
        say "nvidia is Docker's default runtime, registered by $register"
        systemctl restart --no-block docker.service
    fi
}

verify_driver
ecs_setting ECS_ENABLE_GPU_SUPPORT true
default_runtime

# ecs.service waits for a check of its own that a container sees the GPUs: docker is not up before this script ends.
#@ write gpu-check.sh /usr/local/libexec/batchyard-gpu-check 0755
#@ write gpu-check.service /etc/systemd/system/batchyard-gpu-check.service 0644
#@ write ecs-gate.conf /etc/systemd/system/ecs.service.d/10-batchyard.conf 0644
systemctl daemon-reload
systemctl enable batchyard-gpu-check.service
systemctl start --no-block batchyard-gpu-check.service
say "user data ends"
