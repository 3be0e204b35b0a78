"""moto, which answers for every service of AWS but Batch and the logs of jobs. With moto_cloudformation/ and
instance_types the only modules that import it, always by way of here."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

from batchyard.emulator import names
from batchyard.emulator.api_errors import ServerError
from batchyard.emulator.instance_types import instance_family, instance_type
from batchyard.errors import OperationalError

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment
    from flask import Flask
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication
    from werkzeug.serving import WSGIRequestHandler

__all__ = [
    "MOTO_VERSION",
    "application",
    "instance_family",
    "instance_type",
    "request_handler",
    "secret",
    "use_batch",
]

#: The corrections in moto_cloudformation/ reach into moto; they were tried with this one.
MOTO_VERSION = "5.2.5"

Call = Callable[[str, dict[str, Any]], dict[str, Any]]


# -- the application --------------------------------------------------------------------------------------------


def application() -> WSGIApplication:
    """Answers whatever the endpoint does not answer itself. It knows a request's service by its signature.

    moto's own pages under /moto-api/ are not there: they would let whoever reaches the port wipe everything, read
    every secret, make ids predictable, or have Lambda functions started as containers.
    """
    dispatcher = _dispatcher()

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if (
            path == "/favicon.ico"
            or path.rstrip("/") == "/moto-api"
            or path.startswith("/moto-api/")
        ):
            return _refusal(environ, start_response, 404, "NotFound", f"there is nothing at {path}")
        try:
            return dispatcher(environ, start_response)  # type: ignore[no-any-return]
        except _NoSuchService as exc:
            return _refusal(environ, start_response, 400, "UnknownService", str(exc))
        except NotImplementedError as exc:
            return _refusal(
                environ, start_response, 501, "NotImplemented", f"moto {MOTO_VERSION}: {exc}"
            )
        except Exception as exc:
            what = f"moto {MOTO_VERSION} could not answer: {type(exc).__name__}: {exc}"
            return _refusal(environ, start_response, 500, "InternalFailure", what)

    return answer


def request_handler() -> type[WSGIRequestHandler]:
    """For the server that the application runs in: werkzeug's own drops the headers that have an underscore, and with
    them the metadata of S3 objects whose names have one."""
    from moto.moto_server.werkzeug_app import MotoRequestHandler

    return MotoRequestHandler


class _NoSuchService(LookupError):
    pass


@cache
def _dispatcher() -> DomainDispatcherApplication:
    _require_version()
    from moto.core.config import default_user_config
    from moto.moto_server import werkzeug_app

    default_user_config["batch"] = {"use_docker": False}
    default_user_config["lambda"] = {"use_docker": False}
    # Roles get AWS's own policies attached, so they have to be there.
    default_user_config["iam"] = {"load_aws_managed_policies": True}
    # No page of another origin has any business here.
    werkzeug_app.DISABLE_GLOBAL_CORS = True  # type: ignore[attr-defined]
    # It warns of what it does not know on stderr where nobody listens.
    logging.getLogger("moto").addHandler(logging.NullHandler())

    class Dispatcher(werkzeug_app.DomainDispatcherApplication):
        def get_backend_for_host(self, host: str | None) -> Any:
            # moto prints to stdout where it finds none.
            found = (
                None
                if host is None or not _is_known(self, host)
                else super().get_backend_for_host(host)
            )
            if host is not None and found is None:
                raise _NoSuchService(f"no service of AWS is known here by {host}")
            return found

    return Dispatcher(_create_app)


def _is_known(dispatcher: DomainDispatcherApplication, host: str) -> bool:
    from moto import backends

    if host == "moto_api" or host in backends.list_of_moto_modules():
        return True
    return any(pattern.match(f"http://{host}") for _, pattern in dispatcher.backend_url_patterns)


def _create_app(service: Any) -> Flask:
    """moto's application for one service, made at its first request."""
    from moto.moto_server.werkzeug_app import create_backend_app

    if service == "cloudformation":
        from batchyard.emulator.moto_cloudformation.install import install

        install(_ask_batch)
    if service == "s3":
        _pass_over_conditions()
    return create_backend_app(service)


def _pass_over_conditions() -> None:
    """moto holds a bucket policy's conditions for unmet, and then denies everything. So `deny unless TLS`, which is in
    every other bucket policy, would close the bucket; and this endpoint has no TLS. Statements with conditions count
    for nothing, therefore; GetBucketPolicy shows them as ever."""
    from moto.iam.access_control import IAMPolicy, PermissionResult
    from moto.s3.models import FakeBucket

    def get_permission(self: FakeBucket, action: str, resource: str) -> Any:
        policy = json.loads(self.policy) if self.policy else {}
        statements = policy.get("Statement", [])
        statements = statements if isinstance(statements, list) else [statements]
        plain = [statement for statement in statements if not statement.get("Condition")]
        if not plain:
            return PermissionResult.NEUTRAL
        return IAMPolicy(json.dumps({**policy, "Statement": plain})).is_action_permitted(
            action, resource
        )

    FakeBucket.get_permission = get_permission  # type: ignore[method-assign]


def _refusal(
    environ: WSGIEnvironment, start_response: StartResponse, status: int, code: str, message: str
) -> Iterable[bytes]:
    """An error that the AWS clients understand, whichever protocol they speak."""
    is_json = "HTTP_X_AMZ_TARGET" in environ or "json" in environ.get("CONTENT_TYPE", "")
    if is_json:
        body = json.dumps({"__type": code, "message": message})
    else:
        error = f"<Error><Code>{code}</Code><Message>{escape(message)}</Message></Error>"
        body = f"<ErrorResponse>{error}<RequestId>batchyard</RequestId></ErrorResponse>"
    kind = "application/x-amz-json-1.1" if is_json else "text/xml"
    content = body.encode()
    length = str(len(content))
    start_response(
        f"{status} {code}",
        [("Content-Type", kind), ("Content-Length", length), ("x-amzn-errortype", code)],
    )
    return [content]


def _require_version() -> None:
    try:
        found = version("moto")
    except PackageNotFoundError:
        raise OperationalError(
            "`batchyard emulate` needs moto, which is not installed",
            hint="in the clone of batchyard: pip install '.[emulator]'",
        ) from None
    if found != MOTO_VERSION:
        raise OperationalError(
            f"`batchyard emulate` works with moto {MOTO_VERSION}, and {found} is installed",
            hint=f"pip install moto=={MOTO_VERSION} in an environment of its own",
        )


# -- CloudFormation ---------------------------------------------------------------------------------------------

_batch: list[Call] = []


def use_batch(call: Call) -> None:
    """From now on AWS::Batch::* in CloudFormation goes through ``call``: an operation's name and its request, in the
    API's spelling, to its answer; it raises failures.ApiError. moto's state is the process's, and so is this."""
    _batch[:] = [call]


def _ask_batch(operation: str, request: dict[str, Any]) -> dict[str, Any]:
    if not _batch:
        raise ServerError("AWS Batch is not served here")
    return _batch[0](operation, request)


# -- secrets ----------------------------------------------------------------------------------------------------


def secret(value_from: str, region: str = "us-east-1") -> str:
    """What is behind the `valueFrom` of a container's secret: the ARN of a secret of Secrets Manager, which may end in
    `:json-key:version-stage:version-id`, or a parameter's ARN or name. ``region``: where a bare name is looked up.
    Raises LookupError."""
    parts = value_from.split(":")
    if value_from.startswith("arn:") and len(parts) > 5 and parts[2] == "secretsmanager":
        return _secret(value_from, parts)
    account_id = names.ACCOUNT_ID
    if value_from.startswith("arn:"):
        if len(parts) < 6 or parts[2] != "ssm" or not parts[5].startswith("parameter/"):
            raise LookupError(f"{value_from} is no ARN of a secret or of a parameter")
        region, account_id = parts[3], parts[4]
    return _parameter(value_from, region, account_id)


def _secret(value_from: str, parts: list[str]) -> str:
    from moto.core.exceptions import JsonRESTError, ServiceException
    from moto.secretsmanager.models import secretsmanager_backends

    key, stage, version_id = (*parts[7:], "", "", "")[:3]
    try:
        backend = secretsmanager_backends[parts[4]][parts[3]]
        found = backend.get_secret_value(":".join(parts[:7]), version_id or None, stage or None)  # type: ignore[arg-type]
    except (KeyError, JsonRESTError, ServiceException) as exc:
        raise LookupError(f"Secrets Manager has no value for {value_from}: {_told(exc)}") from exc
    text = found.get("SecretString")
    if text is None:
        raise LookupError(
            f"the secret {value_from} is binary; a container's environment takes text"
        )
    if not key:
        return str(text)
    try:
        return _plain(json.loads(text)[key])
    except (ValueError, KeyError, TypeError):
        raise LookupError(
            f"the secret {':'.join(parts[:7])} is no JSON object with a key {key}"
        ) from None


def _parameter(value_from: str, region: str, account_id: str) -> str:
    from moto.core.exceptions import JsonRESTError, ServiceException
    from moto.ssm.models import ssm_backends

    try:
        backend = ssm_backends[account_id][region]
        name = value_from
        if value_from.startswith("arn:"):
            # The ARN of /a/b ends in parameter/a/b, that of b in parameter/b.
            name = value_from.split(":parameter", 1)[1]
            name = name if name.count("/") > 1 else name[1:]
        found = backend.get_parameter(name)
    except (KeyError, JsonRESTError, ServiceException) as exc:
        raise LookupError(f"Systems Manager has no parameter {value_from}: {_told(exc)}") from exc
    if found is None:
        raise LookupError(f"Systems Manager has no parameter {value_from}")
    return str(
        found.decrypt(found.value) if found.parameter_type == "SecureString" else found.value
    )


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _told(exc: Exception) -> str:
    return str(getattr(exc, "message", None) or exc)
