"""A function that cloudknot maps over numbers, as an array job of AWS Batch.

cloudknot builds an image from one of Docker Hub and pushes it to ECR. Neither is needed here: the
script that it puts into the image is started as a process.
"""

import sys
from pathlib import Path

import cloudknot


def square(number):
    return number * number


class PushedImage(cloudknot.DockerImage):
    """An image as it is after its build and push."""

    def _set_imports(self):
        # pipreqs asks PyPI for the packages to install in the image.
        self._pip_imports, self._missing_imports = [], []


def make_image():
    Path("image").mkdir()
    image = PushedImage(func=square, dir_name="image", overwrite=True)
    image._images = [{"name": image.name, "tag": "latest"}]
    image._repo_uri = "123456789012.dkr.ecr.us-east-1.amazonaws.com/cloudknot:latest"
    # The image's entrypoint. The command of the job is only its arguments, so that a process looks
    # for a program with the name of the first one.
    program = Path("programs", "--arrayjob")
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec python {image.script_path} --arrayjob "$@"\n')
    program.chmod(0o755)
    return image


if __name__ == "__main__":
    # `cloudknot configure` would pull images from Docker Hub.
    cloudknot.config.add_resource("aws", "configured", "True")
    cloudknot.set_s3_params(bucket="peers")
    pars = cloudknot.Pars(name="lab", use_default_vpc=False)
    knot = cloudknot.Knot(name="squares", pars=pars, docker_image=make_image(), memory=256)
    futures = knot.map([int(word) for word in sys.argv[1:]])
    print("squares:", futures.result(timeout=600))
    print("status:", knot.jobs[-1].status["status"])
    knot.clobber(clobber_pars=True)
