"""What is known about a job, its queue and its compute environments: values, nothing else.

Every part that has to be asked for separately is the answer, or a ``Missing`` that says why there is none and which IAM
action would have been needed. A check takes a part through ``known``, which ends the check where the part is missing;
the report then says so. Times are epoch milliseconds, as AWS gives them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Missing:
    reason: str = "not gathered"
    #: "ec2:DescribeSubnets"
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
#: so many hosts of a cluster are looked at; one with as many may have more
MAX_HOSTS = 100


@dataclass(frozen=True, slots=True)
class Ending:
    """How an attempt ended; of an array, all children that ended so."""

    exit_code: int | None = None
    status_reason: str = ""
    #: the container's own, like "OutOfMemoryError: Container killed due to memory usage"
    reason: str = ""
    count: int = 1
    #: the id of one such job
    example: str = ""
    #: where its output is, in CloudWatch Logs
    log_stream: str = ""


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
    job_id: str
    status: str
    name: str = ""
    status_reason: str = ""
    #: when it came into the state that it is in, as near as is known
    since_ms: int | None = None
    vcpus: float = 1
    memory_mib: int = 0
    gpus: int = 0
    #: of an array; 0 for a plain job
    size: int = 0
    #: of a multi-node job; 0 otherwise
    nodes: int = 0
    #: EC2 or FARGATE
    platform: str = "EC2"
    image: str = ""
    log_driver: str = ""
    assigns_public_ip: bool = False
    attempts: int = 1
    depends_on: tuple[Dependency, ...] = ()
    endings: tuple[Ending, ...] | Missing = ()
    #: of an array: how many children have failed, looked at or not
    failed: int = 0
    #: by somebody's hand
    is_stopped: bool = False
    log_group: str = "/aws/batch/job"
    consumables: tuple[ConsumableRequest, ...] = ()
    share: str = ""


@dataclass(frozen=True, slots=True)
class Queue:
    name: str
    state: str = "ENABLED"
    status: str = "VALID"
    status_reason: str = ""
    #: names, in the order in which they are tried
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
    #: decoded
    user_data: str = ""
    image_id: str = ""
    hop_limit: int | None = None
    #: of the user data, what EC2 counts; 0 where that is still to be seen. Saved facts hold it unpacked and masked.
    user_data_bytes: int = 0
    #: of an override: types and families that are launched with it, instead of the environment's own
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
    #: as registered, not as advertised
    vcpus: int = 0
    memory_mib: int = 0
    gpus: int = 0
    has_awslogs: bool = True


@dataclass(frozen=True, slots=True)
class Profile:
    """The instance profile."""

    name: str
    exists: bool = True
    role: str = ""
    #: of the actions that the agent needs, those that are refused
    denied: tuple[str, ...] | Missing = ()


@dataclass(frozen=True, slots=True)
class FleetRole:
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
    #: as written: types, families, `optimal`
    instance_types: tuple[str, ...] = ()
    #: ec2Configuration's, like ECS_AL2023_NVIDIA
    image_types: tuple[str, ...] = ()
    #: an image of the user's own
    image_id: str = ""
    bid_percentage: int | None = None
    subnets: tuple[str, ...] = ()
    security_groups: tuple[str, ...] = ()
    placement_group: str = ""
    launch_template: LaunchTemplate | Missing | None = None
    #: None where the environment names none, which is a finding of its own
    profile: Profile | Missing | None = NOT_GATHERED
    fleet_role: FleetRole | Missing | None = NOT_GATHERED
    failures: tuple[Activity, ...] | Missing = NOT_GATHERED
    instances: tuple[Instance, ...] | Missing = NOT_GATHERED
    hosts: tuple[Host, ...] | Missing = NOT_GATHERED
    #: launch templates that some of its types have of their own
    overrides: tuple[LaunchTemplate | Missing, ...] = ()

    @property
    def is_fargate(self) -> bool:
        return self.kind.startswith("FARGATE")

    @property
    def is_spot(self) -> bool:
        return self.kind.endswith("SPOT")


@dataclass(frozen=True, slots=True)
class InstanceType:
    name: str
    vcpus: int
    #: nominal
    memory_mib: int
    #: that ECS can schedule: NVIDIA, whole ones
    gpus: int = 0
    architecture: str = "x86_64"


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
    #: where 0.0.0.0/0 goes: "igw-...", "nat-...", "tgw-..."; empty where nowhere
    default_route: str | Missing = ""
    vpc: str = ""
    #: of the network ACL's rules, those that keep HTTPS in or its answers out
    blocked_by: tuple[str, ...] | Missing = ()


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A VPC endpoint: its service without the region's prefix, like "ecs-agent" or "ecr.dkr"."""

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
    """A limit on running instances, counted in vCPUs."""

    code: str
    vcpus: float
    name: str = ""
    #: by all that runs in the account
    used_vcpus: float | Missing = NOT_GATHERED
    #: there is more than was listed
    is_at_least: bool = False


@dataclass(frozen=True, slots=True)
class SpotPrice:
    type: str
    zone: str
    usd_per_hour: float
    #: 0 where it is not known
    on_demand_usd_per_hour: float
    #: the region whose On-Demand price that is, where it is another
    elsewhere: str = ""


@dataclass(frozen=True, slots=True)
class Consumable:
    name: str
    total: int
    available: int


@dataclass(frozen=True, slots=True)
class Policy:
    """A fair-share policy with what is used of it."""

    compute_reservation: int = 0
    active_shares: tuple[str, ...] = ()
    #: what all shares hold now
    used_vcpus: float | None = None


@dataclass(frozen=True, slots=True)
class Subject:
    #: job, queue, env, pipeline
    kind: str
    name: str
    region: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    subject: Subject
    taken_ms: int
    job: Job | Missing | None = None
    queue: Queue | Missing | None = None
    #: those of the queue in its order, or the one that was asked for
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
    """A queue or an environment, and the shapes that are to run there: jobs without an id, named by their step."""

    facts: Facts
    shapes: tuple[Job, ...] = ()


@dataclass(frozen=True, slots=True)
class Survey:
    """Several places that are judged together: those of a pipeline, or of a named environment."""

    #: pipeline, env
    subject: Subject
    places: tuple[Place, ...] = ()
