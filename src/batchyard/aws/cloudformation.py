"""CloudFormation: what the stacks of an environment say about themselves."""

from __future__ import annotations

from batchyard.aws.door import Door, Refused, told
from batchyard.environments import STACKS


def outputs_of(environment: str, door: Door | None = None) -> dict[str, str]:
    """The outputs of an environment's stacks, and `Region`; nothing where none is deployed."""
    door = door or Door(None)
    found: dict[str, str] = {}
    for stack in STACKS:
        try:
            with told(f"ask about the stack {environment}-{stack}"):
                answer = door.client("cloudformation").describe_stacks(StackName=f"{environment}-{stack}")
        except Refused:
            continue  # "does not exist": the only thing that a right request is refused for
        for output in answer["Stacks"][0].get("Outputs", []):
            found[output["OutputKey"]] = output["OutputValue"]
    return {**found, "Region": door.client("cloudformation").meta.region_name} if found else {}
