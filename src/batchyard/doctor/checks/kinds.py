"""The kinds of findings about jobs, queues and compute environments: BY001 to BY099."""

from __future__ import annotations

from batchyard.doctor.finding import Kind, Severity

DEPENDENCY_FAILED = Kind("BY001", Severity.ERROR, 95, "the job's dependencies can still succeed")
QUEUE_DISABLED = Kind("BY002", Severity.ERROR, 96, "the queue is enabled")
QUEUE_INVALID = Kind("BY003", Severity.ERROR, 96, "the queue is valid")
NO_ENVIRONMENT_ENABLED = Kind(
    "BY004", Severity.ERROR, 94, "the queue has a compute environment that is enabled"
)
ENVIRONMENT_INVALID = Kind("BY005", Severity.ERROR, 93, "every compute environment is valid")
INSTANCES_NEVER_JOINED = Kind("BY006", Severity.ERROR, 92, "launched instances joined the cluster")
USER_DATA_REFUSED = Kind(
    "BY007", Severity.ERROR, 92, "AWS Batch accepts the launch template's user data"
)
SERVICE_ROLE_REFUSED = Kind(
    "BY008", Severity.ERROR, 92, "the service role may do what AWS Batch needs"
)
FLEET_ROLE_REFUSED = Kind("BY009", Severity.ERROR, 92, "the Spot fleet role is accepted")
INSTANCE_PROFILE_REFUSED = Kind("BY010", Severity.ERROR, 92, "the instance profile is accepted")
QUEUE_BLOCKED_BY_OTHER_JOB = Kind(
    "BY011", Severity.ERROR, 60, "no other job blocks the front of the queue"
)
MAX_VCPUS_TOO_SMALL = Kind(
    "BY012", Severity.ERROR, 90, "maxvCpus allows one instance that the job fits on"
)
MAX_VCPUS_USED_UP = Kind("BY013", Severity.WARNING, 50, "maxvCpus is not used up")
NOT_ENOUGH_VCPUS = Kind(
    "BY014", Severity.ERROR, 91, "some instance type has the vCPUs that are asked for"
)
NOT_ENOUGH_MEMORY = Kind(
    "BY015", Severity.ERROR, 92, "some instance type registers the memory that is asked for"
)
NOT_ENOUGH_GPUS = Kind(
    "BY016", Severity.ERROR, 91, "some instance type has the GPUs that are asked for"
)
NO_GPUS = Kind("BY017", Severity.ERROR, 93, "a GPU job meets a compute environment with GPUs")
GPU_AND_CPU_FAMILIES_MIXED = Kind(
    "BY018", Severity.WARNING, 55, "GPU and CPU families are not mixed in an environment"
)
GPUS_NOT_SCHEDULABLE = Kind("BY019", Severity.ERROR, 80, "the GPUs are ones that ECS can schedule")
CPU_IMAGE_ON_GPU_HOST = Kind("BY020", Severity.ERROR, 85, "GPU instances get a GPU image")
GPU_TOO_OLD_FOR_DRIVER = Kind("BY021", Severity.ERROR, 85, "the image's driver knows the GPU")
AMAZON_LINUX_2 = Kind("BY022", Severity.WARNING, 35, "the image is not Amazon Linux 2")
ARCHITECTURES_MIXED = Kind("BY023", Severity.ERROR, 80, "an environment has one architecture")
GPUS_NOT_REGISTERED = Kind("BY024", Severity.ERROR, 88, "GPU hosts registered their GPUs")
QUOTA_TOO_SMALL = Kind(
    "BY025", Severity.ERROR, 87, "the EC2 quota allows one instance that the job fits on"
)
LAUNCH_REFUSED_FOR_QUOTA = Kind("BY026", Severity.ERROR, 90, "no launch was refused for a quota")
NO_CAPACITY = Kind("BY027", Severity.ERROR, 75, "AWS has the capacity that was asked for")
SPOT_BID_TOO_LOW = Kind("BY028", Severity.ERROR, 78, "Spot prices are below the bid")
TYPES_NOT_OFFERED_IN_ZONES = Kind(
    "BY029", Severity.ERROR, 80, "the instance types are offered in the subnets' zones"
)
INSTANCE_TYPE_UNKNOWN = Kind("BY030", Severity.ERROR, 86, "the instance types exist")
NO_ROUTE_TO_AWS = Kind(
    "BY031", Severity.ERROR, 82, "every subnet has a way to ECS, ECR and the logs"
)
NO_PUBLIC_ADDRESS = Kind(
    "BY032", Severity.ERROR, 84, "instances in public subnets get a public address"
)
HTTPS_EGRESS_BLOCKED = Kind("BY033", Severity.ERROR, 76, "the security groups let HTTPS out")
NETWORK_ACL_BLOCKS = Kind(
    "BY034", Severity.ERROR, 60, "the network ACLs let HTTPS out and its answers in"
)
INSTANCE_PROFILE_UNUSABLE = Kind(
    "BY035", Severity.ERROR, 88, "the instance profile exists and has a role"
)
INSTANCE_ROLE_TOO_WEAK = Kind(
    "BY036", Severity.ERROR, 84, "the instance profile's role may register with ECS"
)
AGENT_DISCONNECTED = Kind("BY037", Severity.WARNING, 70, "the agents are connected")
INSTANCES_NOT_JOINING = Kind(
    "BY038", Severity.ERROR, 86, "instances register within the time they need"
)
AWSLOGS_DRIVER_MISSING = Kind("BY039", Severity.ERROR, 72, "the hosts have the job's log driver")
SUBNETS_FULL = Kind("BY040", Severity.ERROR, 78, "the subnets have free addresses")
SERVICE_LINKED_ROLE_MISSING = Kind(
    "BY041", Severity.ERROR, 74, "the service-linked role for Spot exists"
)
FLEET_ROLE_UNUSABLE = Kind("BY042", Severity.ERROR, 74, "the Spot fleet role is there and may tag")
VOLUME_KEY_DENIED = Kind("BY043", Severity.ERROR, 70, "encrypted volumes can be opened at launch")
CONSUMABLE_RESOURCE_USED_UP = Kind("BY044", Severity.ERROR, 80, "the consumable resources suffice")
FAIR_SHARE_RESERVATION = Kind(
    "BY045", Severity.WARNING, 45, "the fair-share policy leaves the job room"
)
IMAGE_ARCHITECTURE_WRONG = Kind(
    "BY046", Severity.ERROR, 80, "the image is of the host's architecture"
)
MULTI_NODE_WITHOUT_ON_DEMAND = Kind(
    "BY047", Severity.ERROR, 82, "a multi-node job meets On-Demand instances"
)
FARGATE_SIZE_UNKNOWN = Kind("BY048", Severity.ERROR, 85, "the Fargate size exists")
FARGATE_IMAGE_UNREACHABLE = Kind("BY049", Severity.ERROR, 80, "a Fargate job can reach its image")
LAUNCH_TEMPLATE_CLASH = Kind(
    "BY050", Severity.ERROR, 68, "the launch template fits the instance types"
)
INSTANCE_CONFIGURATION_UNSUPPORTED = Kind(
    "BY051", Severity.ERROR, 84, "AWS does not call the instance configuration unsupported"
)
SERVICE_ROLE_TOO_WEAK = Kind(
    "BY052", Severity.ERROR, 84, "AWS does not call the service role too weak"
)
BLOCKED_CAUSE_UNDETERMINED = Kind(
    "BY053", Severity.WARNING, 30, "AWS does not call the cause undetermined"
)
BEST_FIT_STRATEGY = Kind("BY054", Severity.WARNING, 25, "the allocation strategy is not BEST_FIT")
UNMANAGED_WITHOUT_INSTANCES = Kind(
    "BY055", Severity.ERROR, 80, "an unmanaged environment has instances"
)
METADATA_HOP_LIMIT = Kind(
    "BY056", Severity.WARNING, 20, "containers can reach the metadata service"
)
SPOT_WITH_SINGLE_TYPE = Kind("BY057", Severity.WARNING, 40, "Spot instances have alternatives")
QUOTA_USED_UP = Kind("BY058", Severity.WARNING, 51, "the EC2 quota is not used up")
BLOCKED_BY_AWS = Kind(
    "BY059", Severity.ERROR, 98, "AWS does not call the job blocked for a reason of its own"
)
COMMAND_FAILED = Kind("BY060", Severity.ERROR, 90, "the command exited with 0")
IMAGE_PULL_FAILED = Kind("BY061", Severity.ERROR, 95, "the image was pulled")
OUT_OF_MEMORY = Kind("BY062", Severity.ERROR, 95, "the container stayed within its memory")
HOST_LOST = Kind("BY063", Severity.WARNING, 92, "the host stayed")
OVERRIDES_TOO_LONG = Kind("BY064", Severity.ERROR, 95, "the overrides are short enough")
TIMED_OUT = Kind("BY065", Severity.ERROR, 94, "the attempt ended within its timeout")
CONTAINER_START_FAILED = Kind("BY066", Severity.ERROR, 93, "the container was started")
RESOURCES_NOT_READY = Kind("BY067", Severity.ERROR, 93, "secrets, roles and volumes were ready")
HOST_DISK_FULL = Kind("BY068", Severity.ERROR, 94, "the host's disk had room")
QUEUE_TIME_LIMIT = Kind("BY069", Severity.ERROR, 94, "no time limit of the queue ended the job")
QUEUE_DELETED = Kind("BY070", Severity.ERROR, 90, "the queue was not deleted")
STARTING_FOR_LONG = Kind(
    "BY071", Severity.WARNING, 60, "a placed job starts within the time it needs"
)
COMMAND_NOT_EXECUTABLE = Kind("BY072", Severity.ERROR, 92, "the command could be executed")
FAILURE_UNEXPLAINED = Kind("BY073", Severity.ERROR, 50, "the reason of every failure is known")

ALL = (
    DEPENDENCY_FAILED,
    QUEUE_DISABLED,
    QUEUE_INVALID,
    NO_ENVIRONMENT_ENABLED,
    ENVIRONMENT_INVALID,
    INSTANCES_NEVER_JOINED,
    USER_DATA_REFUSED,
    SERVICE_ROLE_REFUSED,
    FLEET_ROLE_REFUSED,
    INSTANCE_PROFILE_REFUSED,
    QUEUE_BLOCKED_BY_OTHER_JOB,
    MAX_VCPUS_TOO_SMALL,
    MAX_VCPUS_USED_UP,
    NOT_ENOUGH_VCPUS,
    NOT_ENOUGH_MEMORY,
    NOT_ENOUGH_GPUS,
    NO_GPUS,
    GPU_AND_CPU_FAMILIES_MIXED,
    GPUS_NOT_SCHEDULABLE,
    CPU_IMAGE_ON_GPU_HOST,
    GPU_TOO_OLD_FOR_DRIVER,
    AMAZON_LINUX_2,
    ARCHITECTURES_MIXED,
    GPUS_NOT_REGISTERED,
    QUOTA_TOO_SMALL,
    LAUNCH_REFUSED_FOR_QUOTA,
    NO_CAPACITY,
    SPOT_BID_TOO_LOW,
    TYPES_NOT_OFFERED_IN_ZONES,
    INSTANCE_TYPE_UNKNOWN,
    NO_ROUTE_TO_AWS,
    NO_PUBLIC_ADDRESS,
    HTTPS_EGRESS_BLOCKED,
    NETWORK_ACL_BLOCKS,
    INSTANCE_PROFILE_UNUSABLE,
    INSTANCE_ROLE_TOO_WEAK,
    AGENT_DISCONNECTED,
    INSTANCES_NOT_JOINING,
    AWSLOGS_DRIVER_MISSING,
    SUBNETS_FULL,
    SERVICE_LINKED_ROLE_MISSING,
    FLEET_ROLE_UNUSABLE,
    VOLUME_KEY_DENIED,
    CONSUMABLE_RESOURCE_USED_UP,
    FAIR_SHARE_RESERVATION,
    IMAGE_ARCHITECTURE_WRONG,
    MULTI_NODE_WITHOUT_ON_DEMAND,
    FARGATE_SIZE_UNKNOWN,
    FARGATE_IMAGE_UNREACHABLE,
    LAUNCH_TEMPLATE_CLASH,
    INSTANCE_CONFIGURATION_UNSUPPORTED,
    SERVICE_ROLE_TOO_WEAK,
    BLOCKED_CAUSE_UNDETERMINED,
    BEST_FIT_STRATEGY,
    UNMANAGED_WITHOUT_INSTANCES,
    METADATA_HOP_LIMIT,
    SPOT_WITH_SINGLE_TYPE,
    QUOTA_USED_UP,
    BLOCKED_BY_AWS,
    COMMAND_FAILED,
    IMAGE_PULL_FAILED,
    OUT_OF_MEMORY,
    HOST_LOST,
    OVERRIDES_TOO_LONG,
    TIMED_OUT,
    CONTAINER_START_FAILED,
    RESOURCES_NOT_READY,
    HOST_DISK_FULL,
    QUEUE_TIME_LIMIT,
    QUEUE_DELETED,
    STARTING_FOR_LONG,
    COMMAND_NOT_EXECUTABLE,
    FAILURE_UNEXPLAINED,
)
