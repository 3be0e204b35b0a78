"""Errors that the endpoint sends to clients: error code of AWS, message and HTTP status."""

from __future__ import annotations

from collections.abc import Iterable


class ApiError(Exception):
    """A request that is answered with an error."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        self.code = code
        self.message = message
        self.status = status
        #: Members of the answer beside code and message.
        self.members: dict[str, list[str]] = {}
        super().__init__(message)


class InvalidRequestError(ApiError):
    """A mistake of the client. AWS Batch has one code for all of them: ClientException."""

    def __init__(self, message: str) -> None:
        super().__init__("ClientException", message)


class RequestExecutionError(InvalidRequestError):
    """A request that AWS Batch refuses with "Error executing request" before the reason.

    AWS Batch words most refusals of new resources and jobs so, with the request id at the end
    (facts, 5.4). http_application adds both; the message here is the reason alone.
    """


class ServerError(ApiError):
    """A failure of the endpoint itself."""

    def __init__(self, message: str) -> None:
        super().__init__("ServerException", message, 500)


def raise_first(problems: Iterable[str]) -> None:
    """Raise RequestExecutionError for the first of several problems, as AWS does."""
    for problem in problems:
        raise RequestExecutionError(problem)
