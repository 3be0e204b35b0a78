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

# Mounts the NVMe instance store, if the node has one, where steps with `instance_store` expect it.
mount_instance_store() {
    local disks disk folder=/mnt/instance-store
    mkdir -p "$folder"
    mapfile -t disks < <(find /dev/disk/by-id -name 'nvme-Amazon_EC2_NVMe_Instance_Storage_*' \
        -exec readlink -f {} \; 2>/dev/null | sort -u)
    if ((${#disks[@]} > 0)); then
        disk=${disks[0]}
        if ((${#disks[@]} > 1)) && mdadm --create /dev/md/instance-store --run --level=0 \
            --raid-devices="${#disks[@]}" "${disks[@]}" >>"$node_log" 2>&1; then
            disk=/dev/md/instance-store
        fi
        if mkfs.xfs -f -q "$disk" && mount -o noatime "$disk" "$folder"; then
            say "instance store: $disk of ${#disks[@]} disks at $folder"
        else
            say "instance store: $disk cannot be mounted; $folder is on the root disk"
        fi
    fi
    # Containers write there as any user.
    chmod 1777 "$folder"
}

say "user data begins"
# A node that is about to be reclaimed takes no new work.
ecs_setting ECS_ENABLE_SPOT_INSTANCE_DRAINING true
mount_instance_store
