"""The AWS side: CloudFormation templates, the nodes' user data, and what puts the one into the other.

- templates/: plain YAML, one stack each, named `<environment>-<template>`; they can be deployed by hand
- userdata/: what a node runs at its first boot, as files that can be read, checked and booted
- inline: user data into the templates
"""

from __future__ import annotations

from importlib import resources

#: Every template of the package, each after those whose exports it imports. The first five are an environment;
#: the others are for people who need them.
TEMPLATES = ("network", "storage", "registry", "iam", "batch", "image", "batch-unmanaged", "ecs", "spotfleet")


def template(name: str) -> str:
    """The text of one of TEMPLATES."""
    return resources.files(__name__).joinpath("templates", f"{name}.yaml").read_text(encoding="utf-8")
