"""What real libraries raise has the right category: `make libraries-test`."""

import amqp.exceptions
import anthropic
import azure.core.exceptions as azure
import botocore.exceptions as botocore
import dns.exception
import elastic_transport
import google.api_core.exceptions as google
import google.auth.exceptions as google_auth
import grpc
import httpx
import kafka.errors
import kombu.exceptions
import kubernetes.client
import openai
import paramiko
import pika.exceptions
import pymongo.errors
import pymysql.err
import pytest
import redis.exceptions
import slack_sdk.errors
import stripe
import twilio.base.exceptions
import urllib3.exceptions
import websockets.exceptions

from redrive.rules.attempts.categories import category_of, evidence_of
from redrive.rules.attempts.known_failures import BY_CLASS

REQUEST = httpx.Request("POST", "http://provider")


class Call(grpc.RpcError):
    """What a channel raises: its code is a method."""

    def __init__(self, code: grpc.StatusCode) -> None:
        super().__init__("failed")
        self._code = code

    def code(self) -> grpc.StatusCode:
        return self._code


def answered(library: object, name: str, status: int) -> BaseException:
    response = httpx.Response(status, request=REQUEST)
    return getattr(library, name)("no", response=response, body=None)


def aws(code: str, status: int) -> BaseException:
    answer = {
        "Error": {"Code": code, "Message": "no"},
        "ResponseMetadata": {"HTTPStatusCode": status},
    }
    return botocore.ClientError(answer, "PutItem")


TRANSIENT = [
    stripe.APIConnectionError("no"),
    stripe.APIError("no", http_status=500),
    openai.APIConnectionError(request=REQUEST),
    openai.APITimeoutError(REQUEST),
    answered(openai, "InternalServerError", 500),
    anthropic.APIConnectionError(request=REQUEST),
    answered(anthropic, "APIStatusError", 529),
    slack_sdk.errors.SlackRequestError("no"),
    twilio.base.exceptions.TwilioRestException(503, "/", "no"),
    botocore.ConnectTimeoutError(endpoint_url="/"),
    botocore.ReadTimeoutError(endpoint_url="/"),
    botocore.ConnectionClosedError(endpoint_url="/"),
    botocore.EndpointConnectionError(endpoint_url="/", error="no"),
    botocore.ResponseStreamingError(error="no"),
    aws("InternalError", 500),
    aws("RequestTimeout", 400),
    google.ServiceUnavailable("no"),
    google.DeadlineExceeded("no"),
    google.Aborted("no"),
    google.RetryError("no", None),
    google_auth.TransportError("no"),
    azure.ServiceRequestError("no"),
    azure.ServiceResponseTimeoutError("no"),
    azure.IncompleteReadError("no"),
    Call(grpc.StatusCode.UNAVAILABLE),
    Call(grpc.StatusCode.DEADLINE_EXCEEDED),
    pymysql.err.OperationalError(2006, "MySQL server has gone away"),
    pymongo.errors.AutoReconnect("no"),
    pymongo.errors.ServerSelectionTimeoutError("no"),
    pymongo.errors.WaitQueueTimeoutError("no"),
    elastic_transport.ConnectionTimeout("no"),
    redis.exceptions.BusyLoadingError("no"),
    redis.exceptions.MasterDownError("no"),
    redis.exceptions.ReadOnlyError("no"),
    pika.exceptions.StreamLostError("no"),
    pika.exceptions.ConnectionClosedByBroker(320, "no"),
    amqp.exceptions.ConnectionForced("no"),
    kombu.exceptions.OperationalError("no"),
    kafka.errors.KafkaTimeoutError("no"),
    kafka.errors.NodeNotReadyError("no"),
    paramiko.SSHException("no"),
    paramiko.ssh_exception.NoValidConnectionsError({("::1", 22): OSError("no")}),
    kubernetes.client.ApiException(status=503),
    urllib3.exceptions.MaxRetryError(None, "/"),
    urllib3.exceptions.ProtocolError("no"),
    websockets.exceptions.ConnectionClosedError(None, None),
    dns.exception.Timeout(),
]
THROTTLED = [
    stripe.RateLimitError("no", http_status=429),
    answered(openai, "RateLimitError", 429),
    answered(anthropic, "RateLimitError", 429),
    twilio.base.exceptions.TwilioRestException(429, "/", "no"),
    aws("ThrottlingException", 400),
    aws("ProvisionedThroughputExceededException", 400),
    aws("SlowDown", 503),
    google.ResourceExhausted("no"),
    Call(grpc.StatusCode.RESOURCE_EXHAUSTED),
]
AUTH = [
    stripe.AuthenticationError("no", http_status=401),
    answered(openai, "AuthenticationError", 401),
    botocore.NoCredentialsError(),
    aws("ExpiredToken", 400),
    google.Unauthenticated("no"),
    google_auth.RefreshError("no"),
    azure.ClientAuthenticationError("no"),
    Call(grpc.StatusCode.UNAUTHENTICATED),
    redis.exceptions.AuthenticationError("no"),
    pika.exceptions.ProbableAuthenticationError(403, "no"),
    paramiko.AuthenticationException("no"),
]
INVALID = [
    stripe.InvalidRequestError("no", "amount", http_status=400),
    answered(openai, "BadRequestError", 400),
    aws("ValidationException", 400),
    Call(grpc.StatusCode.INVALID_ARGUMENT),
    pymysql.err.IntegrityError(1062, "Duplicate entry"),
    pymongo.errors.DuplicateKeyError("no"),
]
MISSING = [
    aws("NoSuchKey", 404),
    aws("ResourceNotFoundException", 400),
    google.NotFound("no"),
    Call(grpc.StatusCode.NOT_FOUND),
    kubernetes.client.ApiException(status=404),
]
CASES = [
    (category, error)
    for category, errors in (
        ("transient", TRANSIENT),
        ("throttled", THROTTLED),
        ("auth", AUTH),
        ("invalid", INVALID),
        ("missing", MISSING),
    )
    for error in errors
]


@pytest.mark.parametrize(
    ("expected", "error"),
    CASES,
    ids=[
        f"{expected}-{type(error).__qualname__}-{n}"
        for n, (expected, error) in enumerate(CASES)
    ],
)
def test_an_exception_of_a_library_has_its_category(
    expected: str, error: BaseException
) -> None:
    assert category_of(evidence_of(error, "no")) == expected


OLDER = {
    "stripe.error.APIConnectionError",
    "kafka.errors.NoBrokersAvailable",
    "pydantic.ValidationError",
}
"""Names that older releases have."""


@pytest.mark.parametrize("name", sorted(set(BY_CLASS) - OLDER))
def test_each_class_of_the_table_exists(name: str) -> None:
    module, _, cls = name.rpartition(".")
    found = getattr(__import__(module, fromlist=[cls]), cls, None)
    assert isinstance(found, type), f"{name} is not there any more"
