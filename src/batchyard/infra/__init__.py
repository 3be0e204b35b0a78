"""The AWS side: CloudFormation templates, the nodes' user data, and what puts the one into the other.

- templates/: plain YAML, one stack each, named `<environment>-<template>`; they can be deployed by hand
- userdata/: what a node runs at its first boot, as files that can be read, checked and booted
- inline: user data into the templates
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path

#: Every template that belongs to an environment, each after those whose exports it imports. The first five are what
#: pipelines need; the others are for people who need them.
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
)
#: A stack of its own, which takes nothing from an environment and gives it nothing. It lies at the repository's root,
#: for those who deploy it from there; a wheel has it beside the others.
STANDALONE = "gpu-batch-benchmark"
EVERY = (*TEMPLATES, STANDALONE)


def template(name: str) -> str:
    """The text of one of EVERY."""
    file = resources.files(__name__).joinpath("templates", f"{name}.yaml")
    if name == STANDALONE and not file.is_file():
        file = Path(__file__).parents[3] / f"{name}.yaml"
    return file.read_text(encoding="utf-8")
