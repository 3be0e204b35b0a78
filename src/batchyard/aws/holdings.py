"""List the contents of buckets, repositories, log groups, queues and services; delete some."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from batchyard.aws.cloudformation import naming_admin_errors
from batchyard.aws.clusters import Clusters
from batchyard.aws.session import AwsRefusedError, AwsSession
from batchyard.errors import OperationalError

#: Larger buckets are not counted to the end.
_MAX_COUNTED = 100_000
#: CloudWatch Logs lists 50 streams for each call, and few calls per second.
_MAX_COUNTED_STREAMS = 1000
_MAX_DELETED_OBJECTS = 1000
_MAX_DELETED_IMAGES = 100
_NOT_FOUND_CODES = (
    "NoSuchBucket",
    "RepositoryNotFoundException",
    "ResourceNotFoundException",
    "ClientException",
    "ClusterNotFoundException",
)
#: The tag of all resources of batchyard's stacks (infra.catalogue).
_ENVIRONMENT_TAG = "batchyard:environment"
_UNFINISHED_STATES = ("SUBMITTED", "PENDING", "RUNNABLE", "STARTING", "RUNNING")


@dataclass(frozen=True, slots=True)
class Holding:
    """The contents of a resource of a stack."""

    #: "bucket", "repository", "log group", "queue", "service" or "cluster"
    kind: str
    name: str
    #: Versions of objects, images, log streams, unfinished jobs, tasks that a service keeps, or
    #: tasks on a cluster that no service keeps.
    count: int
    size_bytes: int = 0
    #: True if there are more than were counted.
    is_more: bool = False


class Holdings:
    def __init__(self, session: AwsSession) -> None:
        self._session = session
        self._clusters = Clusters(session)

    def of(self, resource_type: str, physical_id: str) -> Holding | None:
        """Return the contents of a resource; None if it is empty or of another type."""
        readers: dict[str, Callable[[str], Holding]] = {
            "AWS::S3::Bucket": self._bucket,
            "AWS::ECR::Repository": self._repository,
            "AWS::Logs::LogGroup": self._log_group,
            "AWS::Batch::JobQueue": self._queue,
            "AWS::ECS::Service": self._service,
            "AWS::ECS::Cluster": self._cluster,
        }
        if resource_type not in readers:
            return None
        try:
            holding = readers[resource_type](physical_id)
        except AwsRefusedError as exc:
            if exc.code in _NOT_FOUND_CODES:  # deleted by hand
                return None
            raise
        return holding if holding.count else None

    def _bucket(self, name: str) -> Holding:
        count = size = 0
        with naming_admin_errors(f"look into the bucket {name}", "s3"):
            for page in self._versions(name):
                entries = [*page.get("Versions", []), *page.get("DeleteMarkers", [])]
                count += len(entries)
                size += sum(entry.get("Size", 0) for entry in entries)
                if count >= _MAX_COUNTED:
                    return Holding("bucket", name, count, size, is_more=True)
        return Holding("bucket", name, count, size)

    def _versions(self, bucket: str) -> Iterable[Any]:
        pages: Iterable[Any] = (
            self._session.client("s3").get_paginator("list_object_versions").paginate(Bucket=bucket)
        )
        return pages

    def _repository(self, name: str) -> Holding:
        images = self._images(name)
        return Holding(
            "repository",
            name,
            len(images),
            sum(image.get("imageSizeInBytes", 0) for image in images),
        )

    def _images(self, name: str) -> list[Any]:
        with naming_admin_errors(f"list the images in {name}", "ecr"):
            pages = (
                self._session.client("ecr")
                .get_paginator("describe_images")
                .paginate(repositoryName=name)
            )
            return [image for page in pages for image in page["imageDetails"]]

    def _log_group(self, name: str) -> Holding:
        # The `storedBytes` of a group are 0 for hours after its first event; its streams are not.
        with naming_admin_errors(f"list the streams of the log group {name}", "logs"):
            client, count = self._session.client("logs"), 0
            for page in client.get_paginator("describe_log_streams").paginate(logGroupName=name):
                count += len(page["logStreams"])
                if count >= _MAX_COUNTED_STREAMS:
                    return Holding("log group", name, count, is_more="nextToken" in page)
        return Holding("log group", name, count)

    def _service(self, arn: str) -> Holding:
        """Return the tasks that an ECS service keeps; its ARN is .../CLUSTER/NAME."""
        cluster, name = arn.split("/")[-2:]
        with naming_admin_errors(f"describe the service {name}", "ecs"):
            answer = self._session.client("ecs").describe_services(cluster=cluster, services=[arn])
        counts = [
            max(service["desiredCount"], service.get("runningCount", 0))
            for service in answer["services"]
            if service["status"] != "INACTIVE"
        ]
        return Holding("service", name, sum(counts))

    def _cluster(self, name: str) -> Holding:
        """Return the tasks on a cluster that belong to no service."""
        cluster = name.rpartition("/")[2]
        tasks = self._clusters.tasks(cluster)
        count = sum(not task.get("group", "").startswith("service:") for task in tasks)
        return Holding("cluster", cluster, count)

    def services_on(self, name: str) -> list[Holding]:
        """Return the services on a cluster that no stack of batchyard has."""
        cluster = name.rpartition("/")[2]
        return [
            Holding("service", service["serviceName"], max(1, service["desiredCount"]))
            for service in self._clusters.services(cluster)
            if all(tag["key"] != _ENVIRONMENT_TAG for tag in service.get("tags", []))
        ]

    def _queue(self, arn: str) -> Holding:
        count = 0
        with naming_admin_errors(f"list the jobs of {arn}", "batch"):
            for state in _UNFINISHED_STATES:
                pages = (
                    self._session.client("batch")
                    .get_paginator("list_jobs")
                    .paginate(jobQueue=arn, jobStatus=state)
                )
                count += sum(len(page["jobSummaryList"]) for page in pages)
        return Holding("queue", arn.rpartition("/")[2], count)

    # -- emptying --------------------------------------------------------------------------------

    def empty_bucket(self, name: str) -> int:
        """Delete all versions of all objects, and return their number; 0 if the bucket is gone."""
        return _count_unless_gone(lambda: self._empty_bucket(name))

    def _empty_bucket(self, name: str) -> int:
        deleted = 0
        client = self._session.client("s3")
        with naming_admin_errors(f"empty the bucket {name}", "s3"):
            for page in self._versions(name):
                keys = [
                    {"Key": entry["Key"], "VersionId": entry["VersionId"]}
                    for entry in [*page.get("Versions", []), *page.get("DeleteMarkers", [])]
                ]
                for start in range(0, len(keys), _MAX_DELETED_OBJECTS):
                    chunk = keys[start : start + _MAX_DELETED_OBJECTS]
                    answer = client.delete_objects(
                        Bucket=name, Delete={"Objects": chunk, "Quiet": True}
                    )
                    for error in answer.get("Errors", []):
                        raise OperationalError(
                            f"could not empty the bucket {name}: {error.get('Key')}:"
                            f" {error.get('Message')}",
                            hint="an object lock or a bucket policy may prevent the deletion",
                        )
                deleted += len(keys)
        return deleted

    def delete_images(self, repository: str) -> int:
        """Delete all images, and return their number; 0 if the repository is gone."""
        return _count_unless_gone(lambda: self._delete_images(repository))

    def _delete_images(self, repository: str) -> int:
        digests = sorted({image["imageDigest"] for image in self._images(repository)})
        with naming_admin_errors(f"delete the images in {repository}", "ecr"):
            for start in range(0, len(digests), _MAX_DELETED_IMAGES):
                chunk = [
                    {"imageDigest": digest}
                    for digest in digests[start : start + _MAX_DELETED_IMAGES]
                ]
                self._session.client("ecr").batch_delete_image(
                    repositoryName=repository, imageIds=chunk
                )
        return len(digests)

    def deregister(self, prefix: str) -> int:
        """Deregister the job definitions whose names begin with ``prefix``; return their number."""
        client = self._session.client("batch")
        with naming_admin_errors(f"deregister the job definitions {prefix}...", "batch"):
            pages = client.get_paginator("describe_job_definitions").paginate(status="ACTIVE")
            names = [
                f"{definition['jobDefinitionName']}:{definition['revision']}"
                for page in pages
                for definition in page["jobDefinitions"]
                if definition["jobDefinitionName"].startswith(prefix)
            ]
            for name in names:
                client.deregister_job_definition(jobDefinition=name)
        return len(names)


def _count_unless_gone(delete: Callable[[], int]) -> int:
    try:
        return delete()
    except AwsRefusedError as exc:
        if exc.code in _NOT_FOUND_CODES:
            return 0
        raise
