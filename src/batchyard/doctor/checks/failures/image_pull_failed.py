"""BY061: the host could not pull the image."""

from __future__ import annotations

import re

from batchyard.doctor.checks.failures.cause import Cause, mentions
from batchyard.doctor.facts import Ending, Job
from batchyard.doctor.finding import Kind, Severity

KIND = Kind("BY061", Severity.ERROR, 95, "the image was pulled")
#: an image in ECR: account, region, repository, and tag or digest
_ECR_IMAGE = re.compile(
    r"(\d{12})\.dkr\.ecr\.([\w-]+)\.amazonaws\.com(?:\.cn)?/([^:@\s]+)(?:@(sha256:\w+)|:([\w.-]+))?"
)


def _remedy(job: Job, _: Ending) -> tuple[str, ...]:
    image = _ECR_IMAGE.fullmatch(job.image)
    look = f"docker manifest inspect {job.image or 'IMAGE'}   # is it there?"
    if image:
        account, region, repository, digest, tag = image.groups()
        image_id = f"imageDigest={digest}" if digest else f"imageTag={tag or 'latest'}"
        look = (
            f"aws ecr describe-images --region {region} --registry-id {account} "
            f"--repository-name {repository} --image-ids {image_id}"
        )
    queue = job.queue or "QUEUE"
    return look, f"batchyard doctor queue {queue}   # routes and endpoints of its subnets"


CAUSE = Cause(
    KIND,
    mentions(
        "cannotpullcontainer", "cannotpullecrcontainer", "pull access denied", "manifest unknown"
    ),
    "the image could not be pulled: check its name, its tag, the permissions and the network",
    _remedy,
)
