"""moto, which answers for all services and operations that the endpoint does not answer itself.

Only this module, and the other modules that begin with moto_, import moto.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterable
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

from werkzeug.wrappers import Response

from batchyard.emulator import access, moto_step_functions, names
from batchyard.emulator.api_errors import ServerError
from batchyard.errors import OperationalError

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment
    from flask import Flask
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication
    from werkzeug.serving import WSGIRequestHandler

#: moto_cloudformation/ changes internals of moto, and was tested with this version only.
MOTO_VERSION = "5.2.5"
_JSON = "application/x-amz-json-1.1"

Call = Callable[[str, str, dict[str, Any]], dict[str, Any]]


# -- the application ------------------------------------------------------------------------------


def application() -> WSGIApplication:
    """Return a WSGI application that answers as AWS does. The signature names the service.

    The pages of moto under /moto-api/ are switched off: through them, any program that can connect
    could read all secrets, make ids predictable, or start Lambda functions as containers.
    """
    dispatcher = _dispatcher()

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if (
            path == "/favicon.ico"
            or path.rstrip("/") == "/moto-api"
            or path.startswith("/moto-api/")
        ):
            return _refusal(environ, start_response, 404, "NotFound", f"{path} does not exist")
        try:
            answered: Iterable[bytes] = dispatcher(environ, _as_json(environ, start_response))
            return answered
        except _UnknownServiceError as exc:
            return _refusal(environ, start_response, 400, "UnknownService", str(exc))
        except NotImplementedError as exc:
            return _refusal(
                environ, start_response, 501, "NotImplemented", f"moto {MOTO_VERSION}: {exc}"
            )
        except Exception as exc:
            if access.signature_scope(environ) is None:
                # moto fails for most unsigned requests, which AWS refuses.
                message = "Missing Authentication Token"
                code = "MissingAuthenticationTokenException"
                return _refusal(environ, start_response, 403, code, message)
            message = f"moto {MOTO_VERSION} could not answer: {type(exc).__name__}: {exc}"
            return _refusal(environ, start_response, 500, "InternalFailure", message)

    return answer


def _as_json(environ: WSGIEnvironment, start_response: StartResponse) -> StartResponse:
    """Return a start_response that names JSON where the protocol has JSON.

    moto 5.2.5: some answers, such as that of DescribeLogStreams, have the type of a web page.
    """
    if "HTTP_X_AMZ_TARGET" not in environ:
        return start_response

    def start(
        status: str, headers: list[tuple[str, str]], exc_info: Any = None, /
    ) -> Callable[[bytes], object]:
        other_headers = [header for header in headers if header[0].lower() != "content-type"]
        return start_response(status, [*other_headers, ("Content-Type", _JSON)], exc_info)

    return start


def reset() -> None:
    """Forget all resources of all services."""
    from moto.moto_api._internal.models import moto_api_backend

    moto_api_backend.reset()


def request_handler() -> type[WSGIRequestHandler]:
    """Return the request handler for the server of the application.

    werkzeug's own handler drops headers with an underscore in their name, and so the metadata of S3
    objects that have one.
    """
    from moto.moto_server.werkzeug_app import MotoRequestHandler

    return MotoRequestHandler


class _UnknownServiceError(LookupError):
    pass


@cache
def _dispatcher() -> DomainDispatcherApplication:
    _require_version()
    from moto.core.config import default_user_config
    from moto.moto_server import werkzeug_app

    default_user_config["batch"] = {"use_docker": False}
    default_user_config["lambda"] = {"use_docker": False}
    default_user_config["stepfunctions"] = {"execute_state_machine": True}
    # Roles have AWS's managed policies attached, so moto must load these.
    default_user_config["iam"] = {"load_aws_managed_policies": True}
    # Web pages of another origin are refused (access.py).
    werkzeug_app.DISABLE_GLOBAL_CORS = True  # type: ignore[attr-defined]
    # Without a handler, Python's logging prints the warnings of moto to stderr.
    logging.getLogger("moto").addHandler(logging.NullHandler())

    class Dispatcher(werkzeug_app.DomainDispatcherApplication):
        def get_backend_for_host(self, host: str | None) -> Any:
            if host is None:
                return None
            # moto prints to stdout if it has no backend for the host, so this is checked first.
            backend = super().get_backend_for_host(host) if _has_backend(self, host) else None
            if backend is None:
                raise _UnknownServiceError(f"no service of AWS is known here by {host}")
            return backend

    return Dispatcher(_create_app)


def _has_backend(dispatcher: DomainDispatcherApplication, host: str) -> bool:
    from moto import backends

    if host == "moto_api" or host in backends.list_of_moto_modules():
        return True
    return any(pattern.match(f"http://{host}") for _, pattern in dispatcher.backend_url_patterns)


def _create_app(service: Any) -> Flask:
    """Return moto's application for a service, which is made at its first request."""
    from moto.moto_server.werkzeug_app import create_backend_app

    if service == "cloudformation":
        from batchyard.emulator.moto_cloudformation.install import install

        install(_call_batch, _call_ecs)
    if service == "stepfunctions" and _endpoint:
        moto_step_functions.install(*_endpoint[0])
    if service == "s3":
        _ignore_conditions()
        _serialize_writes()
    return create_backend_app(service)


def _ignore_conditions() -> None:
    """Let moto ignore the statements of bucket policies that have conditions.

    moto does not evaluate conditions, and denies all access instead. So the common statement "deny
    without TLS" would close a bucket. GetBucketPolicy still shows these statements.
    """
    from moto.iam.access_control import IAMPolicy, PermissionResult
    from moto.s3.models import FakeBucket

    def get_permission(self: FakeBucket, action: str, resource: str) -> Any:
        policy = json.loads(self.policy) if self.policy else {}
        statements = policy.get("Statement", [])
        statements = statements if isinstance(statements, list) else [statements]
        unconditional = [entry for entry in statements if not entry.get("Condition")]
        if not unconditional:
            return PermissionResult.NEUTRAL
        evaluated = IAMPolicy(json.dumps({**policy, "Statement": unconditional}))
        return evaluated.is_action_permitted(action, resource)

    FakeBucket.get_permission = get_permission  # type: ignore[method-assign]


def _serialize_writes() -> None:
    """Let moto check the condition of a PutObject and write the object in one step.

    Requests run in threads, so two writes with the same condition could both pass their check.
    """
    from moto.s3.responses import S3Response

    write, lock = S3Response.put_object, threading.Lock()

    def put_object(self: S3Response) -> Any:
        with lock:
            return write(self)

    S3Response.put_object = put_object  # type: ignore[method-assign]


def _refusal(
    environ: WSGIEnvironment, start_response: StartResponse, status: int, code: str, message: str
) -> Iterable[bytes]:
    """Answer with an error in JSON or XML, as the request was."""
    is_json = "HTTP_X_AMZ_TARGET" in environ or "json" in environ.get("CONTENT_TYPE", "")
    if is_json:
        body = json.dumps({"__type": code, "message": message})
    else:
        error = f"<Error><Code>{code}</Code><Message>{escape(message)}</Message></Error>"
        body = f"<ErrorResponse>{error}<RequestId>batchyard</RequestId></ErrorResponse>"
    content_type = _JSON if is_json else "text/xml"
    response = Response(body, f"{status} {code}", {"x-amzn-errortype": code}, None, content_type)
    return response(environ, start_response)


def _require_version() -> None:
    try:
        installed = version("moto")
    except PackageNotFoundError:
        raise OperationalError(
            "`batchyard emulate` needs moto, which is not installed",
            hint="in the clone of batchyard: pip install '.[emulator]'",
        ) from None
    if installed != MOTO_VERSION:
        raise OperationalError(
            f"`batchyard emulate` works with moto {MOTO_VERSION}, and {installed} is installed",
            hint=f"pip install moto=={MOTO_VERSION} in an environment of its own",
        )


# -- CloudFormation -------------------------------------------------------------------------------

_batch: list[Call] = []
_ecs: list[Call] = []
#: Address and access key of this endpoint.
_endpoint: list[tuple[str, str]] = []


def use_batch(call: Call) -> None:
    """Let the AWS::Batch resources of CloudFormation call AWS Batch through ``call``.

    ``call`` takes a region, the name and the request of an operation, and returns its answer; it
    raises ApiError. Like the state of moto, this setting belongs to the process.
    """
    _batch[:] = [call]


def use_ecs(call: Call) -> None:
    """Let the AWS::ECS resources of CloudFormation call ECS through ``call``."""
    _ecs[:] = [call]


def use_endpoint(address: str, access_key: str) -> None:
    """Let the tasks of Step Functions call this endpoint. The setting belongs to the process."""
    _endpoint[:] = [(address, access_key)]


def _call_batch(region: str, operation: str, request: dict[str, Any]) -> dict[str, Any]:
    if not _batch:
        raise ServerError("AWS Batch is not served here")
    return _batch[0](region, operation, request)


def _call_ecs(region: str, operation: str, request: dict[str, Any]) -> dict[str, Any]:
    if not _ecs:
        raise ServerError("ECS is not served here")
    return _ecs[0](region, operation, request)


# -- networks -------------------------------------------------------------------------------------


def zone_of_subnet(subnet_id: str, region: str) -> str:
    """Return the availability zone of a subnet; the first zone of the region if it is unknown."""
    from moto.ec2.exceptions import EC2ClientError
    from moto.ec2.models import ec2_backends

    try:
        return str(ec2_backends[names.ACCOUNT_ID][region].get_subnet(subnet_id).availability_zone)
    except (EC2ClientError, KeyError):
        return f"{region}a"


# -- secrets --------------------------------------------------------------------------------------


def read_secret(value_from: str, region: str = "us-east-1") -> str:
    """Return the value of a container's secret.

    ``value_from`` is the ARN of a secret of Secrets Manager, which may end in
    `:json-key:version-stage:version-id`, or the ARN or name of a parameter. ``region`` is that
    of a parameter without an ARN. Raises LookupError.
    """
    parts = value_from.split(":")
    if value_from.startswith("arn:") and len(parts) > 5 and parts[2] == "secretsmanager":
        return _read_secrets_manager(value_from, parts)
    account_id = names.ACCOUNT_ID
    if value_from.startswith("arn:"):
        if len(parts) < 6 or parts[2] != "ssm" or not parts[5].startswith("parameter/"):
            raise LookupError(f"{value_from} is no ARN of a secret or of a parameter")
        region, account_id = parts[3], parts[4]
    return _read_parameter(value_from, region, account_id)


def _read_secrets_manager(value_from: str, parts: list[str]) -> str:
    from moto.core.exceptions import JsonRESTError, ServiceException
    from moto.secretsmanager.models import secretsmanager_backends

    key, stage, version_id = (*parts[7:], "", "", "")[:3]
    try:
        backend = secretsmanager_backends[parts[4]][parts[3]]
        answer = backend.get_secret_value(
            ":".join(parts[:7]),
            version_id or None,  # type: ignore[arg-type]
            stage or None,  # type: ignore[arg-type]
        )
    except (KeyError, JsonRESTError, ServiceException) as exc:
        raise LookupError(
            f"Secrets Manager has no value for {value_from}: {_message(exc)}"
        ) from exc
    text = answer.get("SecretString")
    if text is None:
        raise LookupError(
            f"the secret {value_from} is binary; a container's environment takes text"
        )
    if not key:
        return str(text)
    try:
        value = json.loads(text)[key]
    except (ValueError, KeyError, TypeError):
        raise LookupError(
            f"the secret {':'.join(parts[:7])} is no JSON object with a key {key}"
        ) from None
    return value if isinstance(value, str) else json.dumps(value)


def _read_parameter(value_from: str, region: str, account_id: str) -> str:
    from moto.core.exceptions import JsonRESTError, ServiceException
    from moto.ssm.models import ssm_backends

    try:
        backend = ssm_backends[account_id][region]
        name = value_from
        if value_from.startswith("arn:"):
            # The ARN of /a/b ends in parameter/a/b, that of b in parameter/b.
            name = value_from.split(":parameter", 1)[1]
            name = name if name.count("/") > 1 else name[1:]
        parameter = backend.get_parameter(name)
    except (KeyError, JsonRESTError, ServiceException) as exc:
        raise LookupError(
            f"Systems Manager has no parameter {value_from}: {_message(exc)}"
        ) from exc
    if parameter is None:
        raise LookupError(f"Systems Manager has no parameter {value_from}")
    is_encrypted = parameter.parameter_type == "SecureString"
    return str(parameter.decrypt(parameter.value) if is_encrypted else parameter.value)


def _message(exc: Exception) -> str:
    return str(getattr(exc, "message", None) or exc)
