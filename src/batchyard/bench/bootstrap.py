"""Start the benchmark in a job: download its code, run it, upload its results.

A job receives this file as text. It must run in any image with Python: the syntax is old, boto3 is
installed if it is missing, and batchyard is not there before it has been unpacked.
"""

from __future__ import annotations

import importlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import zipfile
from typing import Any

#: seconds between two uploads of results; another process measures
UPLOAD_INTERVAL_S = 5
OLDEST_PYTHON = (3, 11)


def stop(text: str) -> None:
    """Print an error and exit with code 3."""
    print(f"batchyard: {text}", file=sys.stderr, flush=True)
    sys.exit(3)


def make_s3_client(work: str) -> Any:
    """Return a client of S3. Installs boto3 below ``work`` if the image has none."""
    try:
        return importlib.import_module("boto3").client("s3")
    except ImportError:
        folder = os.path.join(work, "boto3")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", folder, "boto3"]
    if subprocess.call(command, stdout=sys.stderr):
        stop("this image has no boto3, and pip could not install it: put boto3 into the image")
    sys.path.insert(0, folder)
    importlib.invalidate_caches()
    return importlib.import_module("boto3").client("s3")


def install(packages: list[str]) -> None:
    """Install packages into the container, one by one: each may fail, which is only printed."""
    for package in packages:
        if subprocess.call(
            [sys.executable, "-m", "pip", "install", "--quiet", package], stdout=sys.stderr
        ):
            print_missing(package)


def install_system(packages: list[str]) -> None:
    """Install packages of Debian or Ubuntu, unless their programs are there already."""
    missing = [package for package in packages if not shutil.which(package)]
    if missing and (
        not shutil.which("apt-get")
        or subprocess.call(["apt-get", "update", "-qq"], stdout=sys.stderr)
        or subprocess.call(
            ["apt-get", "install", "-qq", "-y", "--no-install-recommends", *missing],
            stdout=sys.stderr,
        )
    ):
        print_missing(" ".join(missing))


def print_missing(name: str) -> None:
    print(
        f"batchyard: {name} could not be installed; continuing without",
        file=sys.stderr,
        flush=True,
    )


def upload_changed(s3: Any, out: str, sent: dict[str, int], bucket: str, prefix: str) -> str:
    """Upload the files that changed since the last call. Returns what went wrong, or nothing."""
    for name in sorted(os.listdir(out)):
        path = os.path.join(out, name)
        try:
            changed = os.stat(path).st_mtime_ns
            if not name.endswith(".part") and sent.get(name) != changed:
                s3.upload_file(path, bucket, prefix + name)
                sent[name] = changed
        except FileNotFoundError:
            continue  # it was renamed meanwhile: the next call finds it
        except Exception as exc:
            return f"could not write s3://{bucket}/{prefix}{name}: {exc}"
    return ""


def main(step: str, arguments: list[str]) -> int:
    if sys.version_info < OLDEST_PYTHON:
        stop(
            f"this image has Python {sys.version.split()[0]}, and the benchmark needs 3.11 or newer"
        )
    bucket, _, prefix = os.environ["BATCHYARD_WORKSPACE"][len("s3://") :].partition("/")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    work = tempfile.mkdtemp(prefix="benchmark-")
    packed, code, out = (os.path.join(work, name) for name in ("code.zip", "code", "out"))
    try:
        install(os.environ.get("BENCHMARK_INSTALL", "").split())
        install_system(os.environ.get("BENCHMARK_APT_INSTALL", "").split())
        s3 = make_s3_client(work)
        try:
            s3.download_file(bucket, f"{prefix}code.zip", packed)
        except Exception as exc:
            stop(f"could not read s3://{bucket}/{prefix}code.zip: {exc}")
        with zipfile.ZipFile(packed) as archive:
            archive.extractall(code)
        os.mkdir(out)
        path = os.pathsep.join(filter(None, (code, os.environ.get("PYTHONPATH"))))
        command = [sys.executable, "-m", "batchyard", "bench", arguments[0], "--out", out]
        environ = {
            **os.environ,
            "PYTHONPATH": path,
            # A measured command runs as if the benchmark were not there.
            "BENCHMARK_FOLDER": os.getcwd(),
            "BENCHMARK_PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        }
        child = subprocess.Popen([*command, *arguments[1:]], cwd=code, env=environ)
        # SIGTERM of a reclaimed host, a timeout or a stop: what was measured is uploaded below.
        signal.signal(signal.SIGTERM, lambda *_: child.send_signal(signal.SIGINT))
        sent: dict[str, int] = {}
        while True:
            try:
                ended: int | None = child.wait(UPLOAD_INTERVAL_S)
            except subprocess.TimeoutExpired:
                ended = None
            problem = upload_changed(s3, out, sent, bucket, f"{prefix}results/{step}/")
            if ended is not None:
                if problem:
                    stop(problem)
                return ended if ended >= 0 else 128 - ended
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
