"""The one place where anything of moto's CloudFormation is exchanged."""

from __future__ import annotations

from typing import Any

from moto.cloudformation import models, parsing, urls

from batchyard.emulator.moto_cloudformation import batch_resources, functions, other_resources
from batchyard.emulator.moto_cloudformation.batch_resources import BatchResource, Call
from batchyard.emulator.moto_cloudformation.edge import Response
from batchyard.emulator.moto_cloudformation.networks import StackRoute, StackSubnet
from batchyard.emulator.moto_cloudformation.operations import Backend
from batchyard.emulator.moto_cloudformation.roles import StackRole
from batchyard.emulator.moto_cloudformation.stacks import Stack


def install(call: Call) -> None:
    """Exchanges what of moto's CloudFormation is wrong for us. To be done before its first request."""
    BatchResource.call = staticmethod(call)
    own: list[Any] = [
        *batch_resources.MODELS,
        *other_resources.MODELS,
        Stack,
        StackRole,
        StackRoute,
        StackSubnet,
    ]
    # moto makes these maps once and keeps them, so what is put into them stays.
    parsing.get_model_map().update({model.cloudformation_type(): model for model in own})
    parsing.get_name_type_map().update(
        {model.cloudformation_type(): model.cloudformation_name_type() for model in own}
    )
    # moto's function calls itself by this name, so ours is asked at every depth of a template.
    parsing.clean_json = functions.resolved  # type: ignore[assignment]
    # Who answers requests, and what holds the stacks, of every account and region.
    urls.url_paths = {"{0}/$": Response.dispatch}
    models.cloudformation_backends.backend = Backend
    models.cloudformation_backends.clear()
