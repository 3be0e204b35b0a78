"""What the endpoint refuses, as AWS says it: an error code, a sentence, an HTTP status. Imports nothing of ours."""

from __future__ import annotations


class ApiError(Exception):
    """A request that is answered with an error."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        self.code = code
        self.message = message
        self.status = status
        super().__init__(message)


class ClientException(ApiError):
    """AWS Batch's word for whatever the caller did wrong."""

    def __init__(self, message: str) -> None:
        super().__init__("ClientException", message)


class SubmissionRefused(ClientException):
    """AWS Batch wraps what SubmitJob and RegisterJobDefinition find wrong (facts, 5.4); the server adds the id."""


class ServerException(ApiError):
    """It is our fault."""

    def __init__(self, message: str) -> None:
        super().__init__("ServerException", message, 500)
