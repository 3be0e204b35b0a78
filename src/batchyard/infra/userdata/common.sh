#!/bin/bash
# Runs once, at the end of cloud-init, as root. Docker and ECS wait for cloud-init, so whatever waits for
# them here waits for ever: they are never started here, and Docker is restarted with --no-block.
set -uo pipefail

readonly node_log=/var/log/batchyard-node.log
readonly ecs_config=/etc/ecs/ecs.config

say() { printf '%s batchyard: %s\n' "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$*" | tee -a "$node_log"; }

# Adds KEY VALUE to the agent's settings. A key that is there already is somebody's choice, and stays.
ecs_setting() {
    mkdir -p "${ecs_config%/*}"
    grep -qs "^$1=" "$ecs_config" && { say "ecs.config has its own $1"; return; }
    # Other parts of the user data append too, and the last line may lack its end.
    [[ -s $ecs_config && -n $(tail -c 1 "$ecs_config") ]] && echo >>"$ecs_config"
    printf '%s=%s\n' "$1" "$2" >>"$ecs_config"
    say "ecs.config: $1=$2"
}

say "user data begins"
# A node that is about to be reclaimed takes no new work.
ecs_setting ECS_ENABLE_SPOT_INSTANCE_DRAINING true
