"""Categories of failures that people meet, by class, HTTP status, SQLSTATE and code.

Libraries are known by name, so none of them has to be installed.
`make libraries-test` compares these tables with the real libraries.
"""

from redrive.rules.model import Category

BY_CLASS: dict[str, Category] = {
    # The payload does not fit.
    "pydantic_core._pydantic_core.ValidationError": Category.INVALID,
    "pydantic.ValidationError": Category.INVALID,
    "msgspec.DecodeError": Category.INVALID,
    "json.decoder.JSONDecodeError": Category.INVALID,
    "redrive.errors.InvalidJob": Category.INVALID,
    # Waiting can help.
    "builtins.TimeoutError": Category.TRANSIENT,
    "builtins.ConnectionError": Category.TRANSIENT,
    "builtins.BlockingIOError": Category.TRANSIENT,
    "asyncio.exceptions.IncompleteReadError": Category.TRANSIENT,
    "socket.gaierror": Category.TRANSIENT,
    "socket.timeout": Category.TRANSIENT,
    "ssl.SSLError": Category.TRANSIENT,
    "ftplib.error_temp": Category.TRANSIENT,
    "http.client.HTTPException": Category.TRANSIENT,
    "urllib.error.URLError": Category.TRANSIENT,
    "smtplib.SMTPServerDisconnected": Category.TRANSIENT,
    "smtplib.SMTPConnectError": Category.TRANSIENT,
    # Access must be granted first.
    "builtins.PermissionError": Category.AUTH,
    "smtplib.SMTPAuthenticationError": Category.AUTH,
    "builtins.FileNotFoundError": Category.MISSING,
    # Only a deploy helps.
    "builtins.TypeError": Category.BUG,
    "builtins.AttributeError": Category.BUG,
    "builtins.NameError": Category.BUG,
    "builtins.AssertionError": Category.BUG,
    "builtins.NotImplementedError": Category.BUG,
    "builtins.ImportError": Category.BUG,
    "builtins.SyntaxError": Category.BUG,
    "builtins.RecursionError": Category.BUG,
    "builtins.ZeroDivisionError": Category.BUG,
    "builtins.IndexError": Category.BUG,
    "builtins.UnboundLocalError": Category.BUG,
    # HTTP clients.
    "httpcore.NetworkError": Category.TRANSIENT,
    "httpcore.ProtocolError": Category.TRANSIENT,
    "httpcore.TimeoutException": Category.TRANSIENT,
    "httpcore2.NetworkError": Category.TRANSIENT,
    "httpcore2.ProtocolError": Category.TRANSIENT,
    "httpcore2.TimeoutException": Category.TRANSIENT,
    "httpx.TransportError": Category.TRANSIENT,
    "httpx2.TransportError": Category.TRANSIENT,
    "requests.exceptions.ConnectionError": Category.TRANSIENT,
    "requests.exceptions.Timeout": Category.TRANSIENT,
    "requests.exceptions.ChunkedEncodingError": Category.TRANSIENT,
    "requests.exceptions.InvalidURL": Category.INVALID,
    "requests.exceptions.MissingSchema": Category.INVALID,
    "urllib3.exceptions.TimeoutError": Category.TRANSIENT,
    "urllib3.exceptions.MaxRetryError": Category.TRANSIENT,
    "urllib3.exceptions.ProtocolError": Category.TRANSIENT,
    "urllib3.exceptions.ProxyError": Category.TRANSIENT,
    "aiohttp.client_exceptions.ClientConnectionError": Category.TRANSIENT,
    "aiohttp.client_exceptions.ClientPayloadError": Category.TRANSIENT,
    "websockets.exceptions.ConnectionClosed": Category.TRANSIENT,
    "dns.exception.Timeout": Category.TRANSIENT,
    "dns.resolver.NoNameservers": Category.TRANSIENT,
    # Clients of providers. An answer has a status, which comes first.
    "stripe._error.APIConnectionError": Category.TRANSIENT,
    "stripe.error.APIConnectionError": Category.TRANSIENT,  # before stripe 8
    "openai.APIConnectionError": Category.TRANSIENT,
    "anthropic.APIConnectionError": Category.TRANSIENT,
    "slack_sdk.errors.SlackRequestError": Category.TRANSIENT,
    "botocore.exceptions.ConnectionError": Category.TRANSIENT,
    "botocore.exceptions.EndpointConnectionError": Category.TRANSIENT,
    "botocore.exceptions.HTTPClientError": Category.TRANSIENT,
    "botocore.exceptions.IncompleteReadError": Category.TRANSIENT,
    "botocore.exceptions.NoCredentialsError": Category.AUTH,
    "botocore.exceptions.CredentialRetrievalError": Category.AUTH,
    "google.api_core.exceptions.Aborted": Category.TRANSIENT,
    "google.api_core.exceptions.Cancelled": Category.TRANSIENT,
    "google.api_core.exceptions.RetryError": Category.TRANSIENT,
    "google.auth.exceptions.TransportError": Category.TRANSIENT,
    "google.auth.exceptions.DefaultCredentialsError": Category.AUTH,
    "google.auth.exceptions.RefreshError": Category.AUTH,
    "azure.core.exceptions.ServiceRequestError": Category.TRANSIENT,
    "azure.core.exceptions.ServiceResponseError": Category.TRANSIENT,
    "azure.core.exceptions.IncompleteReadError": Category.TRANSIENT,
    "azure.core.exceptions.ClientAuthenticationError": Category.AUTH,
    # Databases.
    "psycopg.OperationalError": Category.TRANSIENT,
    "psycopg_pool.PoolTimeout": Category.TRANSIENT,
    "pymysql.err.OperationalError": Category.TRANSIENT,
    "pymysql.err.InterfaceError": Category.TRANSIENT,
    "pymysql.err.IntegrityError": Category.INVALID,
    "pymysql.err.DataError": Category.INVALID,
    "pymysql.err.ProgrammingError": Category.BUG,
    "pymongo.errors.ConnectionFailure": Category.TRANSIENT,
    "pymongo.errors.ExecutionTimeout": Category.TRANSIENT,
    "pymongo.errors.DuplicateKeyError": Category.INVALID,
    "elastic_transport.ConnectionError": Category.TRANSIENT,
    "elastic_transport.ConnectionTimeout": Category.TRANSIENT,
    "redis.exceptions.AuthenticationError": Category.AUTH,
    "redis.exceptions.AuthorizationError": Category.AUTH,
    "redis.exceptions.NoPermissionError": Category.AUTH,
    "redis.exceptions.ConnectionError": Category.TRANSIENT,
    "redis.exceptions.TimeoutError": Category.TRANSIENT,
    "redis.exceptions.ClusterDownError": Category.TRANSIENT,
    "redis.exceptions.ReadOnlyError": Category.TRANSIENT,
    "redis.exceptions.TryAgainError": Category.TRANSIENT,
    # Brokers and servers.
    "pika.exceptions.ProbableAuthenticationError": Category.AUTH,
    "pika.exceptions.AMQPConnectionError": Category.TRANSIENT,
    "amqp.exceptions.RecoverableConnectionError": Category.TRANSIENT,
    "kombu.exceptions.OperationalError": Category.TRANSIENT,
    "kafka.errors.RetriableError": Category.TRANSIENT,
    "kafka.errors.KafkaConnectionError": Category.TRANSIENT,  # before kafka-python 2.1
    "kafka.errors.KafkaTimeoutError": Category.TRANSIENT,
    "kafka.errors.NoBrokersAvailable": Category.TRANSIENT,
    "paramiko.ssh_exception.NoValidConnectionsError": Category.TRANSIENT,
    "paramiko.ssh_exception.AuthenticationException": Category.AUTH,
    "paramiko.ssh_exception.SSHException": Category.TRANSIENT,
}
"""Full class name -> category.

The exception's class is looked up first, then its bases.
"""

BY_STATUS: dict[int, Category] = {
    400: Category.INVALID,
    401: Category.AUTH,
    403: Category.AUTH,
    404: Category.MISSING,
    408: Category.TRANSIENT,
    410: Category.MISSING,
    422: Category.INVALID,
    425: Category.TRANSIENT,
    429: Category.THROTTLED,
}

BY_SQLSTATE: dict[str, Category] = {
    "08": Category.TRANSIENT,  # connection
    "22": Category.INVALID,  # data
    "23": Category.INVALID,  # integrity
    "25006": Category.TRANSIENT,  # read-only after a failover
    "28": Category.AUTH,
    "40": Category.TRANSIENT,  # serialization, deadlock
    "42501": Category.AUTH,
    "42": Category.BUG,  # syntax, names
    "53": Category.TRANSIENT,  # resources
    "55": Category.TRANSIENT,  # lock not available
    "57": Category.TRANSIENT,  # operator intervention
    "58": Category.TRANSIENT,  # system
}
"""SQLSTATE or its first two characters -> category; the full code comes first."""

_AWS_THROTTLED = (
    "BandwidthLimitExceeded",
    "EC2ThrottledException",
    "LimitExceededException",
    "PriorRequestNotComplete",
    "ProvisionedThroughputExceededException",
    "RequestLimitExceeded",
    "RequestThrottled",
    "RequestThrottledException",
    "SlowDown",
    "ThrottledException",
    "Throttling",
    "ThrottlingException",
    "TooManyRequestsException",
    "TransactionInProgressException",
)
"""From botocore, `retries/standard.py`. Many of them come with status 400."""

_AWS_AUTH = (
    "AccessDenied",
    "AccessDeniedException",
    "ExpiredToken",
    "ExpiredTokenException",
    "InvalidClientTokenId",
    "UnrecognizedClientException",
)

BY_CODE: dict[str, Category] = {
    # gRPC: https://grpc.io/docs/guides/status-codes
    "grpc:ABORTED": Category.TRANSIENT,
    "grpc:CANCELLED": Category.TRANSIENT,
    "grpc:DEADLINE_EXCEEDED": Category.TRANSIENT,
    "grpc:INTERNAL": Category.TRANSIENT,
    "grpc:UNAVAILABLE": Category.TRANSIENT,
    "grpc:RESOURCE_EXHAUSTED": Category.THROTTLED,
    "grpc:INVALID_ARGUMENT": Category.INVALID,
    "grpc:OUT_OF_RANGE": Category.INVALID,
    "grpc:PERMISSION_DENIED": Category.AUTH,
    "grpc:UNAUTHENTICATED": Category.AUTH,
    "grpc:NOT_FOUND": Category.MISSING,
    "grpc:UNIMPLEMENTED": Category.BUG,
    # AWS: botocore's ClientError
    **{f"aws:{code}": Category.THROTTLED for code in _AWS_THROTTLED},
    **{f"aws:{code}": Category.AUTH for code in _AWS_AUTH},
    "aws:RequestTimeout": Category.TRANSIENT,
    "aws:RequestTimeoutException": Category.TRANSIENT,
    "aws:ResourceNotFoundException": Category.MISSING,
    # SMTP: replies of RFC 5321; 530 to 538 are of RFC 4954
    **{f"smtp:{reply}": Category.TRANSIENT for reply in range(400, 500)},
    **{f"smtp:{reply}": Category.INVALID for reply in range(500, 600)},
    **{f"smtp:{reply}": Category.AUTH for reply in (530, 534, 535, 538)},
    # OSError: the network
    "errno:EHOSTDOWN": Category.TRANSIENT,
    "errno:EHOSTUNREACH": Category.TRANSIENT,
    "errno:ENETDOWN": Category.TRANSIENT,
    "errno:ENETRESET": Category.TRANSIENT,
    "errno:ENETUNREACH": Category.TRANSIENT,
}
"""Error code of a protocol or provider -> category."""
