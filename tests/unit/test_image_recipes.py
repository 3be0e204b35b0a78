"""The Dockerfiles that `image init` writes."""

from __future__ import annotations

import pytest

from batchyard.images.recipes import KINDS, render_dockerfile


def settings(kind: str) -> dict[str, str]:
    lines = [
        line.removeprefix("ENV ")
        for line in render_dockerfile(kind).splitlines()
        if line.startswith("ENV ")
    ]
    return dict(line.split("=", 1) for line in lines)


@pytest.mark.parametrize("kind", KINDS)
def test_no_image_takes_gpus_that_a_job_was_not_given(kind: str) -> None:
    """NVIDIA's base images set the variable to `all`, which we override; Debian's does not."""
    dockerfile = render_dockerfile(kind)
    is_on_nvidias = "FROM ${BASE}" in dockerfile and "ARG BASE=nvidia/" in dockerfile
    assert settings(kind).get("NVIDIA_VISIBLE_DEVICES") == ("void" if is_on_nvidias else None)
    assert is_on_nvidias == (kind != "cpu")


def test_gpu_images_ask_for_the_driver_and_opencl_finds_it() -> None:
    assert settings("cuda")["NVIDIA_DRIVER_CAPABILITIES"] == "compute,utility"
    assert "/etc/OpenCL/vendors/nvidia.icd" in render_dockerfile("opencl")
