"""Finding a named environment: in the user's file, or among the deployed stacks."""

from __future__ import annotations

from pathlib import Path

from batchyard import environments
from batchyard.aws import cloudformation
from batchyard.aws.session import AwsSession, NoRegionError
from batchyard.environments import Environment
from batchyard.errors import BatchyardError
from batchyard.folder import environments_file

_STACK_SUFFIXES = tuple(f"-{stack}" for stack in environments.WORKING_STACKS)


def find_environment(home: Path, name: str) -> Environment:
    """Return the environment of this name. Raises InputError where there is none."""
    try:
        return environments.load(home, name, cloudformation.read_outputs, _deployed_names)
    except NoRegionError as exc:
        file = environments_file(home)
        raise NoRegionError(
            f"there is no environment {name!r} in {file}, and no region is configured in which "
            "to look for its stacks",
            hint=environments.hint_without_region(name, environments.read(file)),
        ) from exc


def _deployed_names() -> list[str]:
    """Return the names of the deployed environments; none where the user may not list stacks."""
    try:
        summaries = cloudformation.CloudFormation(AwsSession(None)).summaries()
    except BatchyardError:
        return []
    stacks = [
        summary["StackName"]
        for summary in summaries
        if summary["StackStatus"] in ("CREATE_COMPLETE", "UPDATE_COMPLETE")
    ]
    return sorted({stack.rpartition("-")[0] for stack in stacks if stack.endswith(_STACK_SUFFIXES)})
