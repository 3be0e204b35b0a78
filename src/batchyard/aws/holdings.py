"""What buckets, repositories, log groups and job queues hold, and emptying them before their stack goes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from batchyard.aws.cloudformation import administering
from batchyard.aws.session import AwsRefusedError, AwsSession
from batchyard.errors import OperationalError

#: a bucket with more is not counted to its end
_COUNTED_AT_MOST = 100_000
_DELETED_AT_ONCE = 1000
_IMAGES_AT_ONCE = 100
_NOT_THERE = (
    "NoSuchBucket",
    "RepositoryNotFoundException",
    "ResourceNotFoundException",
    "ClientException",
)
_UNFINISHED = ("SUBMITTED", "PENDING", "RUNNABLE", "STARTING", "RUNNING")


@dataclass(frozen=True, slots=True)
class Holding:
    #: bucket, repository, log group or queue
    kind: str
    name: str
    #: objects with their versions, images, or jobs that are not over; of a log group 1 where it has something
    count: int
    size_bytes: int = 0
    #: there are more than were counted
    is_more: bool = False


class Holdings:
    def __init__(self, session: AwsSession) -> None:
        self._session = session

    def of(self, resource_type: str, physical_id: str) -> Holding | None:
        """What a resource of a stack holds; None where it holds nothing, or is of another kind."""
        look: dict[str, Callable[[str], Holding]] = {
            "AWS::S3::Bucket": self._bucket,
            "AWS::ECR::Repository": self._repository,
            "AWS::Logs::LogGroup": self._log_group,
            "AWS::Batch::JobQueue": self._queue,
        }
        if resource_type not in look:
            return None
        try:
            found = look[resource_type](physical_id)
        except AwsRefusedError as exc:
            if exc.code in _NOT_THERE:  # somebody has deleted it by hand
                return None
            raise
        return found if found.count else None

    def _bucket(self, name: str) -> Holding:
        count = size = 0
        with administering(f"look into the bucket {name}", "s3"):
            for page in self._versions(name):
                entries = [*page.get("Versions", []), *page.get("DeleteMarkers", [])]
                count += len(entries)
                size += sum(entry.get("Size", 0) for entry in entries)
                if count >= _COUNTED_AT_MOST:
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
        with administering(f"list the images in {name}", "ecr"):
            pages = (
                self._session.client("ecr")
                .get_paginator("describe_images")
                .paginate(repositoryName=name)
            )
            return [image for page in pages for image in page["imageDetails"]]

    def _log_group(self, name: str) -> Holding:
        with administering(f"look at the log group {name}", "logs"):
            answer = self._session.client("logs").describe_log_groups(logGroupNamePrefix=name)
        size = sum(
            group.get("storedBytes", 0)
            for group in answer["logGroups"]
            if group["logGroupName"] == name
        )
        return Holding("log group", name, 1 if size else 0, size)

    def _queue(self, arn: str) -> Holding:
        count = 0
        with administering(f"list the jobs of {arn}", "batch"):
            for state in _UNFINISHED:
                pages = (
                    self._session.client("batch")
                    .get_paginator("list_jobs")
                    .paginate(jobQueue=arn, jobStatus=state)
                )
                count += sum(len(page["jobSummaryList"]) for page in pages)
        return Holding("queue", arn.rpartition("/")[2], count)

    # -- emptying -------------------------------------------------------------------------------------------------

    def empty_bucket(self, name: str) -> int:
        """Deletes every object in every version. Returns how many; again after an interruption: goes on."""
        deleted = 0
        client = self._session.client("s3")
        with administering(f"empty the bucket {name}", "s3"):
            for page in self._versions(name):
                keys = [
                    {"Key": entry["Key"], "VersionId": entry["VersionId"]}
                    for entry in [*page.get("Versions", []), *page.get("DeleteMarkers", [])]
                ]
                for start in range(0, len(keys), _DELETED_AT_ONCE):
                    some = keys[start : start + _DELETED_AT_ONCE]
                    answer = client.delete_objects(
                        Bucket=name, Delete={"Objects": some, "Quiet": True}
                    )
                    for error in answer.get("Errors", []):
                        raise OperationalError(
                            f"could not empty the bucket {name}: {error.get('Key')}: {error.get('Message')}",
                            hint="what keeps it may be a lock or a policy of the bucket's",
                        )
                deleted += len(keys)
        return deleted

    def delete_images(self, repository: str) -> int:
        digests = sorted({image["imageDigest"] for image in self._images(repository)})
        with administering(f"delete the images in {repository}", "ecr"):
            for start in range(0, len(digests), _IMAGES_AT_ONCE):
                some = [
                    {"imageDigest": digest} for digest in digests[start : start + _IMAGES_AT_ONCE]
                ]
                self._session.client("ecr").batch_delete_image(
                    repositoryName=repository, imageIds=some
                )
        return len(digests)

    def deregister(self, prefix: str) -> int:
        """The job definitions that runs have registered: their names begin so. Returns how many."""
        client = self._session.client("batch")
        with administering(f"deregister the job definitions {prefix}...", "batch"):
            pages = client.get_paginator("describe_job_definitions").paginate(status="ACTIVE")
            found = [
                f"{one['jobDefinitionName']}:{one['revision']}"
                for page in pages
                for one in page["jobDefinitions"]
                if one["jobDefinitionName"].startswith(prefix)
            ]
            for name in found:
                client.deregister_job_definition(jobDefinition=name)
        return len(found)
