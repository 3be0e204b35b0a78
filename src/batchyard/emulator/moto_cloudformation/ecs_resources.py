"""Task definitions and services of ECS, and spot fleets, in CloudFormation.

moto has these types too. Its task definitions and services are not those that the endpoint runs,
and its spot fleets know no launch templates.
"""

from __future__ import annotations

import time
import uuid
from typing import Any, ClassVar, Self

from moto.cloudformation.exceptions import UnformattedGetAttTemplateException
from moto.ec2.models import ec2_backends
from moto.ecs.models import ecs_backends

from batchyard.emulator import api_models, names
from batchyard.emulator.api_errors import ApiError
from batchyard.emulator.moto_cloudformation.batch_resources import Call
from batchyard.emulator.moto_cloudformation.resource_model import (
    AccountRegion,
    Document,
    ResourceError,
    ResourceModel,
)

#: So long all tasks must run: a task that fails at once runs for a moment.
_STEADY_S = 1.0
_BREAKER = (
    "Resource handler returned message: \"Error occurred during operation 'ECS Deployment Circuit "
    "Breaker was triggered'.\" (RequestToken: {token}, HandlerErrorCode: GeneralServiceException)"
)


class EcsResource(ResourceModel):
    """A resource of ECS, identified by its ARN."""

    call: ClassVar[Call]

    @classmethod
    def ask(cls, region: str, operation: str, request: Document) -> Document:
        try:
            return cls.call(region, operation, request)
        except ApiError as exc:
            text = f"{exc.message} (Service: AmazonECS; Status Code: {exc.status})"
            raise ResourceError(f'Resource handler returned message: "{text}"') from exc

    @classmethod
    def request(cls, operation: str, properties: Document) -> Document:
        """Return properties as an operation's request, without those that it has no member for."""
        shape = api_models.service_model("ecs").operation_model(operation).input_shape
        assert shape is not None
        request: Document = api_models.from_cloudformation(shape, properties)
        return request


class TaskDefinition(EcsResource):
    TYPE = "AWS::ECS::TaskDefinition"
    ATTRIBUTES = ("TaskDefinitionArn",)

    def get_cfn_attribute(self, attribute_name: str) -> Any:
        if attribute_name in self.ATTRIBUTES:
            return self.physical_id
        raise UnformattedGetAttTemplateException()

    @classmethod
    def create(
        cls, name: str, properties: Document, location: AccountRegion, logical_id: str
    ) -> Self:
        request = {"family": name, **cls.request("RegisterTaskDefinition", properties)}
        answer = cls.ask(location.region_name, "RegisterTaskDefinition", request)
        return cls(answer["taskDefinition"]["taskDefinitionArn"])

    def delete(self, location: AccountRegion) -> None:
        request = {"taskDefinition": self.physical_id}
        self.ask(names.region_of(self.physical_id), "DeregisterTaskDefinition", request)


class Service(EcsResource):
    TYPE = "AWS::ECS::Service"
    NAME_PROPERTY = "ServiceName"
    ATTRIBUTES = ("Name", "ServiceArn")

    #: Id of the deployment that the last creation or update began or left.
    deployment_id = ""
    #: Since when all tasks run, by the monotonic clock; None if they do not.
    _full_since_s: float | None = None

    def get_cfn_attribute(self, attribute_name: str) -> Any:
        if attribute_name not in self.ATTRIBUTES:
            raise UnformattedGetAttTemplateException()
        is_name = attribute_name == "Name"
        return names.strip_arn(self.physical_id) if is_name else self.physical_id

    @classmethod
    def create(
        cls, name: str, properties: Document, location: AccountRegion, logical_id: str
    ) -> Self:
        request = {**cls.request("CreateService", properties), "serviceName": name}
        answer = cls.ask(location.region_name, "CreateService", {"desiredCount": 1, **request})
        service = cls(answer["service"]["serviceArn"])
        service.deployment_id = answer["service"]["deployments"][0]["id"]
        return service

    def update(self, name: str, properties: Document, location: AccountRegion) -> Self:
        request = self.request("UpdateService", properties) | self._key()
        answer = self.ask(location.region_name, "UpdateService", request)
        self.deployment_id = answer["service"]["deployments"][0]["id"]
        self._full_since_s = None
        return self

    def is_settled(self) -> bool:
        """Return whether all tasks of the last deployment run, and no others.

        Raises ResourceError if the circuit breaker has given the deployment up.
        """
        service = self._find(names.region_of(self.physical_id))
        if service is None:
            raise ResourceError('Resource handler returned message: "Service was not ACTIVE."')
        deployments = {entry["id"]: entry for entry in service["deployments"]}
        state = deployments.get(self.deployment_id, {}).get("rolloutState", "FAILED")
        if state == "FAILED":
            raise ResourceError(_BREAKER.format(token=uuid.uuid4()))
        is_full = service["runningCount"] == service["desiredCount"]
        if state != "COMPLETED" or not is_full or len(deployments) > 1:
            self._full_since_s = None
            return False
        if self._full_since_s is None:
            self._full_since_s = time.monotonic()
        is_new = service["desiredCount"] and time.monotonic() - self._full_since_s < _STEADY_S
        return not is_new

    def delete(self, location: AccountRegion) -> None:
        if self._find(location.region_name) is not None:
            self.ask(location.region_name, "DeleteService", {**self._key(), "force": True})

    def _find(self, region: str) -> Document | None:
        """Return the description of the service; None if it is not active."""
        key = self._key()
        request = {"cluster": key["cluster"], "services": [key["service"]]}
        services = self.ask(region, "DescribeServices", request)["services"]
        return next((service for service in services if service["status"] == "ACTIVE"), None)

    def _key(self) -> Document:
        """Return the cluster and name in the ARN."""
        _, cluster, name = self.physical_id.rsplit("/", 2)
        return {"cluster": cluster, "service": name}


class SpotFleet(ResourceModel):
    """A spot fleet, whose request id is the physical id."""

    TYPE = "AWS::EC2::SpotFleet"

    @classmethod
    def create(
        cls, name: str, properties: Document, location: AccountRegion, logical_id: str
    ) -> Self:
        config = properties["SpotFleetRequestConfigData"]
        fleet = _ec2(location).request_spot_fleet(
            config.get("SpotPrice"),
            int(config["TargetCapacity"]),
            config["IamFleetRole"],
            config.get("AllocationStrategy", "lowestPrice"),
            config.get("LaunchSpecifications", []),
            config.get("LaunchTemplateConfigs", []),
            tag_specifications=config.get("TagSpecifications", []),
        )
        return cls(fleet.id)

    def update(self, name: str, properties: Document, location: AccountRegion) -> Self:
        return self.create(name, properties, location, self.logical_resource_id)

    def delete(self, location: AccountRegion) -> None:
        backend = _ec2(location)
        fleet = backend.spot_fleet_requests.get(self.physical_id)
        if fleet is not None:
            # moto 5.2.5: fails for a fleet that has no instances.
            has_instances = bool(fleet.spot_requests)
            backend.cancel_spot_fleet_requests([self.physical_id], has_instances)


def delete_cluster(account: str, region: str, properties: Document, physical_id: str) -> None:
    """Delete a cluster, which moto has made. Raises ResourceError if it is in use."""
    name, backend = physical_id.rpartition("/")[2], ecs_backends[account][region]
    if name in backend.clusters:
        EcsResource.ask(region, "DeleteCluster", {"cluster": name})
        backend.delete_cluster(name)


MODELS: tuple[type[ResourceModel], ...] = (TaskDefinition, Service, SpotFleet)


def _ec2(location: AccountRegion) -> Any:
    return ec2_backends[location.account_id][location.region_name]
