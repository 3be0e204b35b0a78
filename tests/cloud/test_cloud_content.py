"""Input files are stored by their content: each once, under the hash of what was sent."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from cloud_lab import BUCKET, Lab, calls, run_of, set_faults
from emulator_endpoint import Endpoint

from batchyard.aws import content_files
from batchyard.aws.content_files import ContentFile, ContentFiles
from batchyard.aws.s3 import S3
from batchyard.aws.session import AwsSession
from batchyard.batch.jobs import Resources
from batchyard.engines.aws import staging
from batchyard.errors import OperationalError
from batchyard.plan import PlannedJob

PIPELINE = """\
name: NAME
image: busybox
defaults: {memory: 256MiB}
params: {set: first}
steps:
  - name: join
    commands: ["cat raw/0 raw/1 > out-0", "cat raw/2 > out-1; cat ${params.set}/flag"]
    array: 2
    inputs: ["raw/*", "${params.set}/*"]
    outputs: ["out-${index}"]
"""
RUN = ("run", "pipeline.yaml", "--engine", "aws", "--env", "lab")


def prepare(lab: Lab, name: str) -> None:
    lab.write("pipeline.yaml", PIPELINE.replace("NAME", name))
    for number in range(3):
        lab.write(f"raw/{number}", f"{number}\n")
    lab.write("first/flag", "")


def list_keys(endpoint: Endpoint, prefix: str) -> list[str]:
    answer = endpoint.client("s3").list_objects_v2(Bucket=BUCKET, Prefix=prefix)
    return [entry["Key"] for entry in answer.get("Contents", ())]


@pytest.mark.slow
def test_an_unchanged_file_is_uploaded_once(lab: Lab, calm: None) -> None:
    prepare(lab, "once")
    content = "team/runs/.files/once/"
    done = lab(*RUN)
    assert f"uploaded 4 input files to s3://{BUCKET}/{content}" in done.stderr
    assert (lab.folder / "out-0").read_text() == "0\n1\n"
    first_keys = list_keys(lab.endpoint, content)
    assert len(first_keys) == 4

    lab.write("raw/2", "changed\n")
    os.utime(lab.folder / "raw/0")  # a new time alone is no change
    done = lab(*RUN)
    assert "uploaded 1 input file to" in done.stderr
    assert (lab.folder / "out-1").read_text() == "changed\n"
    assert set(first_keys) < set(list_keys(lab.endpoint, content))
    run = run_of(done)
    assert list_keys(lab.endpoint, f"team/runs/{run}/workspace/") == [
        f"team/runs/{run}/workspace/out-{index}" for index in range(2)
    ]
    assert all(not name.startswith(".") for name in lab("runs", "--env", "lab").stdout.split())


@pytest.mark.slow
def test_a_retry_uses_the_files_of_the_run_and_what_changed_here(lab: Lab, tmp_path: Path) -> None:
    prepare(lab, "again")
    lab.write("second/unused", "")
    run = lab.run("--set", "set=second", code=1)
    # Elsewhere, and without the files: the retry has those of the run.
    other = Lab(tmp_path / "other", lab.endpoint)
    lab.folder.rename(tmp_path / "gone")
    again = other("retry", run, "--env", "lab", "--detach").stdout.strip()
    assert other.ended(again) == "FAILED"
    assert "No such file" in other("logs", again, "join").stdout
    (tmp_path / "gone").rename(lab.folder)
    # Here, with a repaired folder: the new file is sent, and a file that is gone is the run's.
    lab.write("second/flag", "")
    (lab.folder / "raw/2").unlink()
    done = lab("retry", run)
    assert "uploaded 1 input file to" not in done.stderr  # its content is that of second/unused
    assert (lab.folder / "out-1").read_text() == "2\n"


@pytest.mark.slow
def test_a_retry_without_the_content_is_refused(lab: Lab, calm: None) -> None:
    prepare(lab, "lost")
    lab.write("second/unused", "")
    run = lab.run("--set", "set=second", code=1)
    (lab.folder / "raw/2").unlink()
    key = f"team/runs/.files/lost/{hashlib.sha256(b'2' + os.linesep.encode()).hexdigest()}"
    lab.endpoint.client("s3").delete_object(Bucket=BUCKET, Key=key)
    message = lab("retry", run, code=2).stderr
    assert "1 input file of the retried run (raw/2) are neither here nor in s3://" in message


@pytest.mark.slow
def test_fetching_takes_one_request_a_file(lab: Lab, calm: None) -> None:
    prepare(lab, "fetched")
    run = lab.run("--detach")
    assert lab.ended(run) == "SUCCEEDED"
    before = calls(lab.endpoint)
    lab("fetch", run)
    after = calls(lab.endpoint)
    assert after["s3:HEAD"] == before["s3:HEAD"]
    # One list of the workspace, and each of the two files.
    assert after["s3:GET"] - before["s3:GET"] == 3
    assert (lab.folder / "out-0").read_text() == "0\n1\n"


# -- what is stored ------------------------------------------------------------------------------


@pytest.fixture
def store(
    endpoint: Endpoint, tmp_path: Path, calm: None, monkeypatch: pytest.MonkeyPatch
) -> ContentFiles:
    for name, value in endpoint.variables.items():
        monkeypatch.setenv(name, value)
    return ContentFiles(S3(AwsSession("us-east-1")), f"s3://{BUCKET}/store/{tmp_path.name}/")


def stored_content(endpoint: Endpoint, store: ContentFiles) -> dict[str, bytes]:
    client = endpoint.client("s3")
    prefix = store.address.removeprefix(f"s3://{BUCKET}/")
    return {
        key.removeprefix(prefix): client.get_object(Bucket=BUCKET, Key=key)["Body"].read()
        for key in list_keys(endpoint, prefix)
    }


def test_files_of_all_sizes_are_stored_under_their_hash(
    endpoint: Endpoint, store: ContentFiles, tmp_path: Path
) -> None:
    sizes = [0, 1, 8 * 2**20, 8 * 2**20 + 1, 20 * 2**20]
    paths = [tmp_path / str(size) for size in sizes]
    for path, size in zip(paths, sizes, strict=True):
        path.write_bytes(os.urandom(size))
    hashes: dict[Path, ContentFile] = {}
    store.store(paths, hashes)
    assert len(store.uploaded) == len(sizes)
    expected = {hashlib.sha256(path.read_bytes()).hexdigest(): path for path in paths}
    assert {content.sha256 for content in hashes.values()} == set(expected)
    for sha256, data in stored_content(endpoint, store).items():
        assert data == expected[sha256].read_bytes()
    again = ContentFiles(store._s3, store.address)
    again.store(paths, {})
    assert again.uploaded == []


def test_a_file_that_changes_meanwhile_is_never_stored_under_a_wrong_hash(
    endpoint: Endpoint, store: ContentFiles, tmp_path: Path
) -> None:
    path = tmp_path / "growing"
    path.write_bytes(os.urandom(9 * 2**20))
    is_over = threading.Event()

    def write() -> None:
        while not is_over.is_set():
            with path.open("r+b") as file:
                file.seek(9 * 2**20 - 16)
                file.write(os.urandom(16))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        with pytest.raises(OperationalError, match="growing changes while it is uploaded"):
            store.store([path], {})
    finally:
        is_over.set()
        writer.join()
    assert stored_content(endpoint, store) == {}
    uploads: Any = endpoint.client("s3").list_multipart_uploads(Bucket=BUCKET)
    assert not uploads.get("Uploads")
    # A hash from before the change is not believed either.
    stale = {path: ContentFile("0" * 64, path.stat().st_size)}
    store.store([path], stale)
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    assert stale[path].sha256 == sha256 and set(stored_content(endpoint, store)) == {sha256}


def test_a_lost_answer_to_the_end_of_an_upload_is_no_failure(
    endpoint: Endpoint, store: ContentFiles, tmp_path: Path
) -> None:
    """The repeated request finds no upload any more: the first one has ended it."""
    path = tmp_path / "large"
    path.write_bytes(os.urandom(9 * 2**20))
    store._s3.client.meta.events.register(
        "before-call.s3.CompleteMultipartUpload",
        lambda **_: set_faults(endpoint, "lose@s3:POST=1x"),
    )
    before = calls(endpoint)["s3:POST"]
    try:
        store.store([path], {})
    finally:
        set_faults(endpoint, "")
    assert calls(endpoint)["s3:POST"] - before == 3  # begin the upload, and end it twice
    assert list(stored_content(endpoint, store).values()) == [path.read_bytes()]


def test_an_old_object_is_made_new_for_the_lifecycle(
    endpoint: Endpoint, store: ContentFiles, tmp_path: Path
) -> None:
    (tmp_path / "a").write_bytes(b"a")
    hashes: dict[Path, ContentFile] = {}
    store.store([tmp_path / "a"], hashes)
    sha256 = hashes[tmp_path / "a"].sha256
    before = calls(endpoint)["s3:PUT"]
    store.refresh([sha256])
    assert calls(endpoint)["s3:PUT"] == before
    now_s = next(iter(store.stored.values())).modified_s
    later = ContentFiles(store._s3, store.address, lambda: now_s + content_files.REFRESH_S + 60)
    later.refresh([sha256])
    assert calls(endpoint)["s3:PUT"] == before + 1
    assert stored_content(endpoint, store) == {sha256: b"a"}


@pytest.mark.slow
def test_fetching_another_run_brings_its_files_back(store: ContentFiles, tmp_path: Path) -> None:
    """The files of two runs can have the same name and size."""
    job = PlannedJob("a", 1, False, Resources(1, 4), outputs=("x",))
    addresses = [f"{store.address}{run}/" for run in ("first", "second")]
    for address in addresses:
        store._s3.put(f"{address}x", address.encode()[-4:])
        time.sleep(1.1)  # the times of objects are whole seconds
    for address in (*addresses, addresses[0]):
        assert staging.fetch_outputs(store._s3, [job], tmp_path, address) == 1
        assert (tmp_path / "x").read_bytes() == address.encode()[-4:]
        assert staging.fetch_outputs(store._s3, [job], tmp_path, address) == 0
