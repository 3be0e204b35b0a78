"""Dockerfiles to start from: CPU, CUDA, OpenCL on NVIDIA; and the worker's own files beside them. Pure but for copying.

NVIDIA's own images set NVIDIA_VISIBLE_DEVICES=all, with which a job takes GPUs that others were given where nvidia is
Docker's default runtime. Ours take that back: ECS sets it, to the GPUs that a job was given.
"""

from __future__ import annotations

from pathlib import Path

from batchyard.errors import InputError, from_os_error

KINDS = ("cpu", "cuda", "opencl")

_BASES = {
    "cpu": "debian:trixie-slim",
    "cuda": "nvidia/cuda:12.6.3-runtime-ubuntu24.04",
    "opencl": "nvidia/cuda:12.6.3-base-ubuntu24.04",
}
_ABOUT = {
    "cpu": "a step that needs no GPU",
    "cuda": "a step that uses CUDA",
    "opencl": "a step that uses OpenCL on NVIDIA GPUs",
}
_PACKAGES = {"cpu": "", "cuda": "", "opencl": " ocl-icd-libopencl1 clinfo"}
#: the driver's files come from the host; an image that is not built on NVIDIA's own must say which it wants
_GPU_LINES = """# What of the driver the container gets from the host; without it there is no libcuda and no nvidia-smi.
ENV NVIDIA_DRIVER_CAPABILITIES={capabilities}
# The base says `all`, which would take GPUs that were given to others. A job with GPUs is told its own.
ENV NVIDIA_VISIBLE_DEVICES=void
"""
_ICD_LINES = """# Tells the OpenCL loader where NVIDIA's implementation is, which comes with the driver.
RUN mkdir -p /etc/OpenCL/vendors && echo libnvidia-opencl.so.1 > /etc/OpenCL/vendors/nvidia.icd
"""
_TEMPLATE = """# {about}. Build it with `batchyard image build --kind {kind} --tag NAME`.
ARG BASE={base}
FROM ${{BASE}}

# The worker needs Python 3.10 or newer and boto3. Add what your commands need.
RUN apt-get update \\
 && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \\
    python3 python3-boto3 ca-certificates{packages} \\
 && rm -rf /var/lib/apt/lists/*
{gpu}
COPY batchyard-worker/ /opt/batchyard-worker/
RUN ln -s /opt/batchyard-worker/batchyard-worker /usr/local/bin/batchyard-worker

# Your code:
# COPY . /app
# ENV PATH=/app:$PATH
"""
_LAUNCHER = """#!/bin/sh
# Found by its real place, since it is started by way of a link.
PYTHONPATH="$(dirname "$(readlink -f "$0")")${PYTHONPATH:+:$PYTHONPATH}" exec python3 -m batchyard.worker "$@"
"""
_IGNORED = """.batchyard
.git
**/__pycache__
"""


def dockerfile(kind: str) -> str:
    gpu = ""
    if kind != "cpu":
        gpu = "\n" + _GPU_LINES.format(capabilities="compute,utility")
    if kind == "opencl":
        gpu += "\n" + _ICD_LINES
    about = f"The image of {_ABOUT[kind]}"
    return _TEMPLATE.format(
        about=about, kind=kind, base=_BASES[kind], packages=_PACKAGES[kind], gpu=gpu
    )


def write(folder: Path, kinds: tuple[str, ...], *, force: bool = False) -> list[Path]:
    """Lays the files down; what is there already is left unless ``force``. Returns what was written."""
    package = Path(__file__).resolve().parents[1]
    files: dict[Path, str] = {folder / f"Dockerfile.{kind}": dockerfile(kind) for kind in kinds}
    files[folder / ".dockerignore"] = _IGNORED
    worker = folder / "batchyard-worker"
    sources = [
        package / "__init__.py",
        package / "shard.py",
        package / "s3_layout.py",
        *sorted((package / "worker").glob("*.py")),
    ]
    own = {
        worker / "batchyard" / path.relative_to(package): path.read_text(encoding="utf-8")
        for path in sources
    }
    own[worker / "batchyard-worker"] = _LAUNCHER
    written = []
    try:
        for path, text in files.items():
            if path.exists() and not force:
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            written.append(path)
        # The worker's files are ours, and always those of this version.
        for path, text in own.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        (worker / "batchyard-worker").chmod(0o755)
    except OSError as exc:
        raise from_os_error(exc, "write the image's files in", folder) from exc
    return [*written, worker]


def kind_of(name: str) -> str:
    if name not in KINDS:
        raise InputError(f"{name!r} is no kind of image", hint=f"the kinds are {', '.join(KINDS)}")
    return name
