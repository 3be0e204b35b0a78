"""moto behind the endpoint: what it answers through boto3, the aws command and plain HTTP, on a
real port."""

from __future__ import annotations

import http.client
import io
import json
import subprocess
import sys
import threading
import uuid
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

pytest.importorskip("moto")

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError
from werkzeug.serving import make_server

from batchyard.batch.hosts import registered_mib
from batchyard.batch.jobs import Resources
from batchyard.ec2_types import list_family, registered_resources
from batchyard.emulator import moto_adapter
from batchyard.emulator.moto_adapter import read_secret

REGION = "us-east-1"
CREDENTIALS = {
    "aws_access_key_id": "test",
    "aws_secret_access_key": "test",
    "region_name": REGION,
    "config": Config(retries={"max_attempts": 0}),
}

Client = Callable[[str], Any]


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    class Quiet(moto_adapter.request_handler()):  # type: ignore[misc]
        def log(self, type: str, message: str, *args: Any) -> None:
            pass

    server = make_server(
        "127.0.0.1", 0, moto_adapter.application(), threaded=True, request_handler=Quiet
    )
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(params=["127.0.0.1", "localhost"])
def client(request: pytest.FixtureRequest, port: int) -> Client:
    """By either name of this machine."""
    return lambda service: boto3.client(
        service, endpoint_url=f"http://{request.param}:{port}", **CREDENTIALS
    )


@pytest.fixture
def local_client(port: int) -> Client:
    return lambda service: boto3.client(
        service, endpoint_url=f"http://127.0.0.1:{port}", **CREDENTIALS
    )


def ask(
    port: int, method: str, path: str, body: bytes = b"", **headers: str
) -> tuple[int, bytes, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    connection.request(
        method, path, body, {name.replace("_", "-"): value for name, value in headers.items()}
    )
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, content, {name.lower(): value for name, value in answer.getheaders()}


# -- S3 -------------------------------------------------------------------------------------------


def test_s3_by_path(client: Client) -> None:
    s3 = client("s3")
    s3.create_bucket(Bucket="by-path")
    s3.put_object(
        Bucket="by-path", Key="a folder/ä.txt", Body=b"hello", Metadata={"some_key": "value"}
    )
    answer = s3.get_object(Bucket="by-path", Key="a folder/ä.txt")
    assert (answer["Body"].read(), answer["Metadata"]) == (b"hello", {"some_key": "value"})
    assert [
        o["Key"] for o in s3.list_objects_v2(Bucket="by-path", Prefix="a folder/")["Contents"]
    ] == ["a folder/ä.txt"]


def test_s3_by_the_name_of_the_host(port: int, local_client: Client) -> None:
    # Not every machine's resolver knows names under localhost, so the connection is made by
    # address.
    local_client("s3").create_bucket(Bucket="by-host")
    authorization = (
        f"AWS4-HMAC-SHA256 Credential=test/20260101/{REGION}/s3/aws4_request, "
        "SignedHeaders=host, Signature=0"
    )
    headers = {"Host": f"by-host.localhost:{port}", "Authorization": authorization}
    assert ask(port, "PUT", "/folder/key.txt", b"by host", **headers)[0] == 200
    assert ask(port, "GET", "/folder/key.txt", **headers)[:2] == (200, b"by host")
    assert (
        local_client("s3").get_object(Bucket="by-host", Key="folder/key.txt")["Body"].read()
        == b"by host"
    )


def test_of_many_conditional_writes_one_wins(local_client: Client) -> None:
    s3 = local_client("s3")
    s3.create_bucket(Bucket="races")

    def write(number: int) -> bool:
        try:
            s3.put_object(Bucket="races", Key="lock", Body=str(number).encode(), IfNoneMatch="*")
        except ClientError as exc:
            assert exc.response["Error"]["Code"] == "PreconditionFailed"
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        won = [number for number, has_won in enumerate(pool.map(write, range(24))) if has_won]
    assert len(won) == 1
    body = s3.get_object(Bucket="races", Key="lock")["Body"].read()
    assert body == str(won[0]).encode()


def test_a_bucket_policy_that_wants_tls_does_not_close_the_bucket(local_client: Client) -> None:
    s3 = local_client("s3")
    s3.create_bucket(Bucket="policed")
    conditional = {
        "Effect": "Deny",
        "Principal": "*",
        "Action": "s3:*",
        "Resource": ["arn:aws:s3:::policed", "arn:aws:s3:::policed/*"],
        "Condition": {"Bool": {"aws:SecureTransport": "false"}},
    }
    policy = {"Version": "2012-10-17", "Statement": [conditional]}
    s3.put_bucket_policy(Bucket="policed", Policy=json.dumps(policy))
    s3.put_object(Bucket="policed", Key="open", Body=b"x")
    assert json.loads(s3.get_bucket_policy(Bucket="policed")["Policy"]) == policy

    plain = {name: value for name, value in conditional.items() if name != "Condition"}
    s3.put_bucket_policy(
        Bucket="policed", Policy=json.dumps({"Version": "2012-10-17", "Statement": [plain]})
    )
    with pytest.raises(ClientError, match="403"):
        s3.put_object(Bucket="policed", Key="closed", Body=b"x")


# -- the other services ---------------------------------------------------------------------------


def test_the_services_that_clients_of_batch_call(client: Client) -> None:
    assert client("sts").get_caller_identity()["Account"] == "123456789012"
    types = client("ec2").describe_instance_types(InstanceTypes=["g5.xlarge"])["InstanceTypes"]
    assert types[0]["GpuInfo"]["Gpus"][0]["Count"] == 1

    name = f"of-{uuid.uuid4()}"
    client("ecr").create_repository(repositoryName=name)
    assert (
        client("ecr").describe_repositories(repositoryNames=[name])["repositories"][0][
            "repositoryName"
        ]
        == name
    )
    client("ecs").create_cluster(clusterName=name)
    assert client("ecs").describe_clusters(clusters=[name])["clusters"][0]["status"] == "ACTIVE"
    client("ssm").put_parameter(Name=name, Value="1", Type="String")
    assert client("ssm").get_parameter(Name=name)["Parameter"]["Value"] == "1"
    client("secretsmanager").create_secret(Name=name, SecretString="2")
    assert client("secretsmanager").get_secret_value(SecretId=name)["SecretString"] == "2"
    client("iam").create_role(RoleName=name, AssumeRolePolicyDocument="{}")
    assert client("iam").get_role(RoleName=name)["Role"]["RoleName"] == name
    template = json.dumps(
        {"Resources": {"Bucket": {"Type": "AWS::S3::Bucket", "Properties": {"BucketName": name}}}}
    )
    client("cloudformation").create_stack(StackName=name, TemplateBody=template)
    assert (
        client("cloudformation").describe_stacks(StackName=name)["Stacks"][0]["StackStatus"]
        == "CREATE_COMPLETE"
    )
    client("s3").head_bucket(Bucket=name)


def test_roles_get_the_policies_of_aws(local_client: Client) -> None:
    iam = local_client("iam")
    iam.create_role(RoleName="instances", AssumeRolePolicyDocument="{}")
    arn = "arn:aws:iam::aws:policy/service-role/AmazonEC2ContainerServiceforEC2Role"
    iam.attach_role_policy(RoleName="instances", PolicyArn=arn)
    attached = iam.list_attached_role_policies(RoleName="instances")["AttachedPolicies"]
    assert [policy["PolicyArn"] for policy in attached] == [arn]


@pytest.mark.slow
def test_the_aws_command(port: int) -> None:
    environment = {
        "PATH": "/usr/bin:/bin",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": REGION,
    }

    def aws(*args: str) -> str:
        command = [sys.executable, "-m", "awscli", *args]
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, check=True, timeout=300
        ).stdout

    aws("s3", "mb", "s3://from-the-command")
    answer = json.loads(aws("sts", "get-caller-identity"))
    assert answer["Account"] == "123456789012"
    assert "from-the-command" in aws("s3", "ls")


# -- what it does not do --------------------------------------------------------------------------


def test_no_container_is_started_for_a_function_of_lambda(
    local_client: Client, tmp_path: Any
) -> None:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as bundle:
        bundle.writestr(
            "main.py",
            f"def run(event, context):\n    open({str(tmp_path / 'ran')!r}, 'w').close()\n",
        )
    role = local_client("iam").create_role(RoleName="for-lambda", AssumeRolePolicyDocument="{}")[
        "Role"
    ]["Arn"]
    local_client("lambda").create_function(
        FunctionName="f",
        Runtime="python3.12",
        Role=role,
        Handler="main.run",
        Code={"ZipFile": archive.getvalue()},
    )
    answer = local_client("lambda").invoke(FunctionName="f")
    assert answer["Payload"].read() == b"Simple Lambda happy path OK"
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "path", ["", "/", "/reset", "/data.json", "/config", "/seed?a=1", "/recorder/start-recording"]
)
def test_the_pages_of_moto_are_not_there(port: int, path: str) -> None:
    for method in ("GET", "POST"):
        assert ask(port, method, f"/moto-api{path}")[0] == 404


def test_no_page_of_another_origin_is_let_in(port: int) -> None:
    headers = ask(port, "GET", "/", Origin="http://example.org")[2]
    assert "access-control-allow-origin" not in headers


def test_an_operation_that_moto_does_not_have_is_named(
    local_client: Client, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ClientError) as caught:
        local_client("ssm").list_nodes()
    assert caught.value.response["Error"]["Code"] == "NotImplemented"
    assert "list_nodes" in caught.value.response["Error"]["Message"]
    with pytest.raises(
        ClientError, match=r"\(NotImplemented\).*describe_trunk_interface_associations"
    ):
        local_client("ec2").describe_trunk_interface_associations()
    assert capfd.readouterr() == ("", "")


def test_what_moto_stumbles_over_is_an_answer_and_no_traceback(
    port: int, capfd: pytest.CaptureFixture[str]
) -> None:
    authorization = (
        f"AWS4-HMAC-SHA256 Credential=test/20260101/{REGION}/dynamodb/aws4_request, "
        "SignedHeaders=host"
    )
    status, body, _ = ask(port, "POST", "/", Authorization=authorization)
    assert status == 500 and b"<Code>InternalFailure</Code>" in body and b"KeyError" in body
    assert capfd.readouterr() == ("", "")


def test_a_service_that_moto_does_not_have_is_named(
    local_client: Client, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ClientError, match=r"\(UnknownService\).*braket"):
        local_client("braket").search_devices(filters=[])
    assert capfd.readouterr() == ("", "")


def test_another_moto_is_refused(tmp_path: Any) -> None:
    """With a package of another version first on the path, as another installation has it."""
    for name in ("moto", "moto-9.9.9.dist-info"):
        (tmp_path / name).mkdir()
    (tmp_path / "moto" / "__init__.py").touch()
    (tmp_path / "moto-9.9.9.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: moto\nVersion: 9.9.9\n"
    )
    script = (
        "from batchyard.emulator import moto_adapter\n"
        "from batchyard.errors import OperationalError\n"
        "try:\n    moto_adapter.application()\n"
        "except OperationalError as exc:\n    print(exc.message, exc.hint)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "works with moto 5.2.5, and 9.9.9 is installed" in done.stdout


def test_nothing_of_moto_is_loaded_before_it_is_needed() -> None:
    script = (
        "import batchyard.emulator.moto_adapter, sys; "
        "print([m for m in sys.modules if m.startswith('moto')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


# -- instance types -------------------------------------------------------------------------------


def test_instance_types() -> None:
    assert registered_resources("m4.large") == Resources(2, 7953)
    assert registered_resources("g5.12xlarge") == Resources(
        48, registered_mib(196608, "g5.12xlarge"), 4
    )
    # A fraction of a GPU, and a GPU that is not NVIDIA's or an accelerator that is none.
    assert registered_resources("g6f.large") == Resources(2, registered_mib(8192), 0)
    inferentia = registered_resources("inf1.xlarge")
    assert inferentia is not None and inferentia.gpus == 0
    assert registered_resources("m3.8xlarge") is None


def test_instance_families() -> None:
    assert sorted(list_family("gr6")) == ["gr6.4xlarge", "gr6.8xlarge"]
    assert registered_resources("m6i.metal") is not None
    assert "m6i.large" in list_family("m6i")
    assert not [name for name in list_family("m6i") + list_family("m7i") if "metal" in name]
    assert list_family("nope") == []


# -- secrets --------------------------------------------------------------------------------------


def test_secrets_of_secrets_manager(local_client: Client) -> None:
    manager = local_client("secretsmanager")
    first = {"user": "me", "port": 5432}
    arn = manager.create_secret(Name="db/login", SecretString=json.dumps(first))["ARN"]
    old = manager.get_secret_value(SecretId=arn)["VersionId"]
    assert json.loads(read_secret(arn)) == first
    assert (read_secret(f"{arn}:user::"), read_secret(f"{arn}:port::")) == ("me", "5432")

    manager.put_secret_value(SecretId=arn, SecretString='{"user": "you"}')
    assert read_secret(f"{arn}:user::") == "you"
    assert read_secret(f"{arn}:user:AWSPREVIOUS:") == "me"
    assert read_secret(f"{arn}:user::{old}") == "me"
    # The ARN without the six letters at its end is enough.
    assert read_secret(arn.rpartition("-")[0]) == '{"user": "you"}'

    for wrong in (
        f"{arn}:password::",
        arn.replace("login", "logout"),
        f"{arn}:user:NOSTAGE:",
        f"{arn}:user::no-version",
    ):
        with pytest.raises(LookupError, match=r"(?i)secret"):
            read_secret(wrong)


def test_secrets_of_systems_manager(local_client: Client) -> None:
    ssm = local_client("ssm")
    ssm.put_parameter(Name="/team/key", Value="hidden", Type="SecureString")
    ssm.put_parameter(Name="flat", Value="plain", Type="String")
    other = boto3.client(
        "ssm", endpoint_url=ssm.meta.endpoint_url, **{**CREDENTIALS, "region_name": "eu-west-1"}
    )
    other.put_parameter(Name="flat", Value="elsewhere", Type="String")

    assert (read_secret("/team/key"), read_secret("flat")) == ("hidden", "plain")
    assert read_secret("arn:aws:ssm:us-east-1:123456789012:parameter/team/key") == "hidden"
    assert read_secret("arn:aws:ssm:eu-west-1:123456789012:parameter/flat") == "elsewhere"
    assert read_secret("flat", region="eu-west-1") == "elsewhere"
    for wrong in (
        "nothing",
        "arn:aws:ssm:us-east-1:123456789012:parameter/nothing",
        "arn:aws:s3:::bucket",
    ):
        with pytest.raises(LookupError, match=wrong):
            read_secret(wrong)
