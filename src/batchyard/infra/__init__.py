"""CloudFormation templates, the user data of hosts, and the commands that deploy them.

- templates/: plain YAML, one stack each, named `<environment>-<template>`; can be deployed by hand
- userdata/: the scripts of a host's first boot, as files that can be read, checked and booted
- inline: copies the user data into the templates
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path

#: The templates of an environment, each after the ones that it imports from. Pipelines need the
#: first five; the others are optional.
TEMPLATES = (
    "network",
    "storage",
    "registry",
    "iam",
    "batch",
    "image",
    "batch-unmanaged",
    "ecs",
    "spotfleet",
    "caps",
)
#: A stack that belongs to no environment. Its file is at the root of the repository, for users who
#: deploy it from there; in a wheel it is with the other templates.
STANDALONE = "gpu-batch-benchmark"
EVERY = (*TEMPLATES, STANDALONE)


def read_template(name: str) -> str:
    """Return the text of a template; ``name`` is one of EVERY."""
    file = resources.files(__name__).joinpath("templates", f"{name}.yaml")
    if name == STANDALONE and not file.is_file():
        file = Path(__file__).parents[3] / f"{name}.yaml"
    return file.read_text(encoding="utf-8")
