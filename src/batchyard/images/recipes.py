"""Write Dockerfiles for CPU, CUDA and OpenCL images, and the files of the worker.

NVIDIA's base images set NVIDIA_VISIBLE_DEVICES=all. Where nvidia is Docker's default runtime, a job
would so use GPUs of other jobs. Our Dockerfiles reset it: ECS sets it to the GPUs of the job.
"""

from __future__ import annotations

from pathlib import Path

from batchyard.errors import from_os_error

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
#: The driver's files come from the host; the image declares which of them it needs.
_GPU_LINES = """# What of the driver the container gets from the host.
# Without it there is no libcuda and no nvidia-smi.
ENV NVIDIA_DRIVER_CAPABILITIES={capabilities}
# The base image sets `all`, which includes GPUs of other jobs. ECS sets those of the job.
ENV NVIDIA_VISIBLE_DEVICES=void
"""
_ICD_LINES = """# The OpenCL loader finds the implementation of NVIDIA's driver by this file.
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
#: No variable is exported: the commands of a step inherit the worker's environment.
_LAUNCHER = """#!/bin/sh
# Start the worker with a Python of the image. start.py tries one after the other.
# Resolve the link by which this file is started.
batchyard_folder="$(dirname "$(readlink -f "$0")")"
set --
for batchyard_python in "$BATCHYARD_PYTHON" python3 python \\
    /opt/conda/bin/python3 /opt/conda/envs/*/bin/python3 /opt/mamba/bin/python3 \\
    /opt/miniconda3/bin/python3 /opt/miniforge3/bin/python3 /opt/venv/bin/python3 \\
    "$HOME"/miniconda3/bin/python3 "$HOME"/miniforge3/bin/python3 \\
    /usr/local/bin/python3 /usr/bin/python3; do
  batchyard_python="$(command -v "$batchyard_python" 2> /dev/null)" || continue
  [ -n "$batchyard_python" ] && set -- "$@" "$batchyard_python"
done
if [ $# -eq 0 ]; then
  echo "batchyard-worker: the image has no Python; install Python 3.10 or newer and boto3," \\
    "or set BATCHYARD_PYTHON to the path of one" >&2
  exit 71
fi
exec "$1" "$batchyard_folder/start.py" "$@"
"""
_START = '''"""Run the worker, or start this file again with the next Python of the arguments.

Old versions of Python must be able to read this file.
"""

import os
import sys

EXIT_MACHINE = 71


def find_problem():
    if sys.version_info < (3, 10):
        return "Python %d.%d is too old" % sys.version_info[:2]
    from importlib.util import find_spec

    return "" if find_spec("botocore") else "it has no boto3"


def start(pythons):
    problem = find_problem()
    if not problem:
        # Not by PYTHONPATH: the commands of the step would inherit it.
        sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
        from batchyard.worker.main import main

        main()  # ends the process
    if len(pythons) > 1:
        os.execv(pythons[1], [pythons[1], os.path.abspath(__file__)] + pythons[1:])
    sys.stderr.write(
        "batchyard-worker: no Python of the image can run the worker, which needs Python 3.10 or "
        "newer and boto3; the last one is %s: %s; install both there, or set BATCHYARD_PYTHON "
        "to the path of another one\\n" % (sys.executable, problem)
    )
    sys.exit(EXIT_MACHINE)


start(sys.argv[1:])
'''
_IGNORED = """.batchyard
.git
**/__pycache__
"""


def render_dockerfile(kind: str) -> str:
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
    """Write the files, and return the paths that were written.

    Existing Dockerfiles are kept unless ``force``; the worker is always replaced.
    """
    package = Path(__file__).resolve().parents[1]
    files: dict[Path, str] = {
        folder / f"Dockerfile.{kind}": render_dockerfile(kind) for kind in kinds
    }
    files[folder / ".dockerignore"] = _IGNORED
    worker = folder / "batchyard-worker"
    sources = [
        package / "__init__.py",
        package / "quick_dataclasses.py",
        package / "shard.py",
        package / "blocks.py",
        package / "child_patterns.py",
        package / "s3_layout.py",
        package / "service_models.py",
        *sorted((package / "sampling").glob("*.py")),
        *sorted((package / "worker").glob("*.py")),
    ]
    worker_files = {
        worker / "batchyard" / path.relative_to(package): path.read_text(encoding="utf-8")
        for path in sources
    }
    worker_files[worker / "batchyard-worker"] = _LAUNCHER
    worker_files[worker / "start.py"] = _START
    written = []
    try:
        for path, text in files.items():
            if path.exists() and not force:
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            written.append(path)
        for path, text in worker_files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        (worker / "batchyard-worker").chmod(0o755)
    except OSError as exc:
        raise from_os_error(exc, "write the image's files in", folder) from exc
    return [*written, worker]
