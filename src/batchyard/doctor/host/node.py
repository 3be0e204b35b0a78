"""The files that a node of ours writes about itself: its GPU check, and the log of its user data.

Before ECS may start, the user data of our templates checks that a container sees the GPUs of the
node, and writes the result to gpu-check.json. Other nodes do not have these files.
"""

from __future__ import annotations

import json

from batchyard.doctor.facts import Missing
from batchyard.doctor.host.facts import HostFacts, NodeCheck

CHECK_FILE = "/var/lib/batchyard/gpu-check.json"
LOG_FILE = "/var/log/batchyard-node.log"
CHECK_UNIT = "batchyard-gpu-check.service"
#: how many lines of the log are gathered, and how many a finding shows
LOG_LINES = 40
LINES_SHOWN = 4
MAX_LOG_LINE_LENGTH = 300
#: what the user data logs where it could not do something
_TROUBLE = ("nvidia-smi still fails", "left as it is", "no cluster is known")


def parse_check(text: str) -> NodeCheck | Missing:
    try:
        result = json.loads(text)
    except (ValueError, RecursionError):
        result = None
    if not isinstance(result, dict) or not isinstance(result.get("ok"), bool):
        return Missing(f"{CHECK_FILE} holds no verdict")
    return NodeCheck(
        result["ok"], *(str(result.get(name, "")) for name in ("stage", "reason", "time"))
    )


def find_trouble(facts: HostFacts) -> tuple[str, ...]:
    """Return the last lines of the log that report trouble, cut to MAX_LOG_LINE_LENGTH."""
    lines = facts.node_log if isinstance(facts.node_log, tuple) else ()
    trouble = [line for line in lines if any(words in line for words in _TROUBLE)]
    return tuple(line[:MAX_LOG_LINE_LENGTH] for line in trouble[-LINES_SHOWN:])
