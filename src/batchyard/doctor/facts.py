"""Facts about a job, its queue and its compute environments, as plain values.

A part that needs an AWS call of its own is the answer, or a ``Missing`` with the reason and the
IAM action that was denied. A check reads such a part through ``require``, which ends the check
where the part is missing; the report then lists the check as not run. Times are epoch
milliseconds, as AWS gives them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from batchyard.ec2_types import InstanceType

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Missing:
    """A part of the facts that could not be gathered."""

    reason: str = "not gathered"
    #: the IAM action that was denied, like "ec2:DescribeSubnets"; empty for other reasons
    action: str = ""


class MissingFactError(Exception):
    """A check needs a fact that could not be gathered."""

    def __init__(self, missing: Missing) -> None:
        super().__init__(missing.reason)
        self.missing = missing


def require(part: T | Missing) -> T:
    """Return the part. Raises MissingFactError where it is missing."""
    if isinstance(part, Missing):
        raise MissingFactError(part)
    return part


NOT_GATHERED = Missing()
#: At most this many hosts of a cluster are described; a cluster with as many may have more.
MAX_HOSTS = 100


@dataclass(frozen=True, slots=True)
class Ending:
    """How an attempt ended, or how a group of an array's children ended."""

    exit_code: int | None = None
    status_reason: str = ""
    #: the reason of the container, like "OutOfMemoryError: Container killed due to memory usage"
    reason: str = ""
    #: the number of children in the group
    count: int = 1
    #: the id of a job that ended like this
    example: str = ""
    #: the stream of that job in CloudWatch Logs
    log_stream: str = ""
    #: the last lines of that stream
    log_lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Dependency:
    job_id: str
    status: str = ""


@dataclass(frozen=True, slots=True)
class ConsumableRequest:
    """How much of a consumable resource a job requests."""

    resource: str
    quantity: int


@dataclass(frozen=True, slots=True)
class Job:
    """A job, or, without an id, a shape: the resources that a step would request."""

    job_id: str
    status: str
    name: str = ""
    status_reason: str = ""
    #: when the job entered its current state, as near as is known
    since_ms: int | None = None
    vcpus: float = 1
    memory_mib: int = 0
    gpus: int = 0
    #: the number of children of an array; 0 for a single job
    size: int = 0
    #: the number of nodes of a multi-node job; 0 for other jobs
    nodes: int = 0
    #: EC2 or FARGATE
    platform: str = "EC2"
    image: str = ""
    log_driver: str = ""
    assigns_public_ip: bool = False
    attempts: int = 1
    depends_on: tuple[Dependency, ...] = ()
    endings: tuple[Ending, ...] | Missing = ()
    #: how many children of an array have failed, whether in ``endings`` or not
    failed: int = 0
    #: whether a user stopped the job
    is_stopped: bool = False
    log_group: str = "/aws/batch/job"
    consumables: tuple[ConsumableRequest, ...] = ()
    share: str = ""
    #: the name of the job queue
    queue: str = ""


@dataclass(frozen=True, slots=True)
class Queue:
    name: str
    state: str = "ENABLED"
    status: str = "VALID"
    status_reason: str = ""
    #: names of compute environments, in the order in which AWS Batch tries them
    environments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FrontJob:
    """A job at the front of the queue, as GetJobQueueSnapshot lists it."""

    job_id: str
    status_reason: str = ""
    since_ms: int | None = None


@dataclass(frozen=True, slots=True)
class LaunchTemplate:
    id: str
    version: str = ""
    #: decoded from base64
    user_data: str = ""
    image_id: str = ""
    hop_limit: int | None = None
    #: the size of the user data as EC2 counts it; 0 where it is still to be computed. Saved
    #: facts need it because they hold the user data unpacked and masked.
    user_data_bytes: int = 0
    #: of an override: the types and families that are launched with it
    target_types: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Activity:
    """A scaling activity of the Auto Scaling group, or an event of the Spot Fleet, that failed."""

    message: str
    at_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Instance:
    """An EC2 instance that the environment launched."""

    id: str
    type: str = ""
    zone: str = ""
    launched_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Host:
    """A container instance: an EC2 instance that joined the cluster."""

    instance_id: str
    type: str = ""
    is_connected: bool = True
    #: as registered with ECS, which is less than the instance type has
    vcpus: int = 0
    memory_mib: int = 0
    gpus: int = 0
    has_awslogs: bool = True


@dataclass(frozen=True, slots=True)
class Profile:
    """The instance profile of an environment."""

    name: str
    exists: bool = True
    role: str = ""
    #: the actions that the ECS agent needs and the role does not allow
    denied: tuple[str, ...] | Missing = ()


@dataclass(frozen=True, slots=True)
class FleetRole:
    """The Spot fleet role of an environment."""

    name: str
    exists: bool = True
    can_tag: bool = True


@dataclass(frozen=True, slots=True)
class Environment:
    name: str
    state: str = "ENABLED"
    status: str = "VALID"
    status_reason: str = ""
    is_managed: bool = True
    #: EC2, SPOT, FARGATE or FARGATE_SPOT
    kind: str = "EC2"
    strategy: str = ""
    min_vcpus: int = 0
    max_vcpus: int = 0
    desired_vcpus: int = 0
    #: as configured: types, families, `optimal`
    instance_types: tuple[str, ...] = ()
    #: the image types of ec2Configuration, like ECS_AL2023_NVIDIA
    image_types: tuple[str, ...] = ()
    #: the AMI that the user chose; empty for the default
    image_id: str = ""
    bid_percentage: int | None = None
    subnets: tuple[str, ...] = ()
    security_groups: tuple[str, ...] = ()
    placement_group: str = ""
    launch_template: LaunchTemplate | Missing | None = None
    #: None where the environment names no profile
    profile: Profile | Missing | None = NOT_GATHERED
    fleet_role: FleetRole | Missing | None = NOT_GATHERED
    failures: tuple[Activity, ...] | Missing = NOT_GATHERED
    instances: tuple[Instance, ...] | Missing = NOT_GATHERED
    hosts: tuple[Host, ...] | Missing = NOT_GATHERED
    #: launch templates that replace the one above for some instance types
    overrides: tuple[LaunchTemplate | Missing, ...] = ()

    @property
    def is_fargate(self) -> bool:
        return self.kind.startswith("FARGATE")

    @property
    def is_spot(self) -> bool:
        return self.kind.endswith("SPOT")


@dataclass(frozen=True, slots=True)
class Offering:
    type: str
    zone: str


@dataclass(frozen=True, slots=True)
class Subnet:
    id: str
    zone: str = ""
    free_addresses: int = 0
    gives_public_address: bool = False
    #: the target of 0.0.0.0/0, like "igw-...", "nat-..." or "tgw-..."; empty without a route
    default_route: str | Missing = ""
    vpc: str = ""
    #: the rules of the network ACL that block HTTPS requests or their answers
    blocked_by: tuple[str, ...] | Missing = ()


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A VPC endpoint."""

    #: without the prefix of the region, like "ecs-agent" or "ecr.dkr"
    service: str
    vpc: str = ""


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of a security group for outgoing traffic."""

    protocol: str = "-1"
    from_port: int = 0
    to_port: int = 65535
    target: str = "0.0.0.0/0"


@dataclass(frozen=True, slots=True)
class SecurityGroup:
    id: str
    egress: tuple[Rule, ...] = ()


@dataclass(frozen=True, slots=True)
class Quota:
    """An EC2 quota on the vCPUs of running instances."""

    code: str
    vcpus: float
    name: str = ""
    #: the vCPUs of all running instances of the account
    used_vcpus: float | Missing = NOT_GATHERED
    #: whether more instances run than were counted
    is_at_least: bool = False


@dataclass(frozen=True, slots=True)
class SpotPrice:
    type: str
    zone: str
    usd_per_hour: float
    #: 0 where the price is not known
    on_demand_usd_per_hour: float
    #: the region of the On-Demand price, where it is another region
    elsewhere: str = ""


@dataclass(frozen=True, slots=True)
class Consumable:
    """A consumable resource."""

    name: str
    total: int
    available: int


@dataclass(frozen=True, slots=True)
class Policy:
    """A fair-share policy."""

    compute_reservation: int = 0
    active_shares: tuple[str, ...] = ()
    #: the vCPUs that all shares use
    used_vcpus: float | None = None
    arn: str = ""


@dataclass(frozen=True, slots=True)
class Subject:
    """What the user asked about."""

    #: job, queue, env or pipeline
    kind: str
    name: str
    region: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    subject: Subject
    taken_ms: int
    job: Job | Missing | None = None
    queue: Queue | Missing | None = None
    #: the environments of the queue in its order, or the environment that was asked about
    environments: tuple[Environment, ...] | Missing = NOT_GATHERED
    front: tuple[FrontJob, ...] | Missing = NOT_GATHERED
    types: tuple[InstanceType, ...] | Missing = NOT_GATHERED
    offerings: tuple[Offering, ...] | Missing = NOT_GATHERED
    subnets: tuple[Subnet, ...] | Missing = NOT_GATHERED
    endpoints: tuple[Endpoint, ...] | Missing = NOT_GATHERED
    security_groups: tuple[SecurityGroup, ...] | Missing = NOT_GATHERED
    quotas: tuple[Quota, ...] | Missing = NOT_GATHERED
    spot_prices: tuple[SpotPrice, ...] | Missing = NOT_GATHERED
    #: names of the service-linked roles that exist
    linked_roles: tuple[str, ...] | Missing = NOT_GATHERED
    consumables: tuple[Consumable, ...] | Missing = NOT_GATHERED
    policy: Policy | Missing | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """A queue or an environment, and the shapes that are to run there."""

    facts: Facts
    shapes: tuple[Job, ...] = ()


@dataclass(frozen=True, slots=True)
class Survey:
    """The queues of a pipeline, or of a named environment, that are judged together."""

    #: pipeline or env
    subject: Subject
    places: tuple[Place, ...] = ()
