"""Replaces parts of moto's CloudFormation by ours; no other module changes anything in moto's."""

from __future__ import annotations

from typing import Any

from moto.cloudformation import models, parsing, urls

from batchyard.emulator.moto_cloudformation import (
    batch_resources,
    corrected_resources,
    ecs_resources,
    missing_resources,
    template_functions,
)
from batchyard.emulator.moto_cloudformation.backend import Backend
from batchyard.emulator.moto_cloudformation.batch_resources import BatchResource, Call
from batchyard.emulator.moto_cloudformation.ecs_resources import EcsResource
from batchyard.emulator.moto_cloudformation.responses import Response
from batchyard.emulator.moto_cloudformation.stacks import Stack


def install(call_batch: Call, call_ecs: Call) -> None:
    """Put our parts in the place of moto's. Must run before moto's first CloudFormation request.

    ``call_batch`` performs an operation of AWS Batch, ``call_ecs`` one of ECS.
    """
    BatchResource.call = staticmethod(call_batch)
    EcsResource.call = staticmethod(call_ecs)
    resource_models: list[Any] = [
        *batch_resources.MODELS,
        *missing_resources.MODELS,
        *corrected_resources.MODELS,
        *ecs_resources.MODELS,
        Stack,
    ]
    # moto makes these maps once and caches them, so entries that are added stay.
    parsing.get_model_map().update(
        {model.cloudformation_type(): model for model in resource_models}
    )
    parsing.get_name_type_map().update(
        {model.cloudformation_type(): model.cloudformation_name_type() for model in resource_models}
    )
    # moto's function calls itself by this name, so ours resolves values at every depth.
    parsing.clean_json = template_functions.resolve  # type: ignore[assignment]
    urls.url_paths = {"{0}/$": Response.dispatch}
    # Every account and region gets a backend of our class.
    models.cloudformation_backends.backend = Backend
    models.cloudformation_backends.clear()
