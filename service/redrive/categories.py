"""Which category an exception belongs to, as a table: first match wins, and no library has to be installed for it.

An exception is matched by the names of its class and its base classes, so the table can speak of httpx without
importing it. Status codes and SQLSTATEs are read off the attributes that the common libraries use.
"""

from redrive.model import Category

BY_CLASS: dict[str, Category] = {
    # payloads that do not fit
    "pydantic_core._pydantic_core.ValidationError": Category.INVALID,
    "pydantic.ValidationError": Category.INVALID,
    "msgspec.DecodeError": Category.INVALID,
    "json.decoder.JSONDecodeError": Category.INVALID,
    "redrive.errors.InvalidJob": Category.INVALID,
    # waiting can help
    "builtins.TimeoutError": Category.TRANSIENT,
    "builtins.ConnectionError": Category.TRANSIENT,
    "builtins.BlockingIOError": Category.TRANSIENT,
    "socket.gaierror": Category.TRANSIENT,
    "socket.timeout": Category.TRANSIENT,
    "ssl.SSLError": Category.TRANSIENT,
    "http.client.HTTPException": Category.TRANSIENT,
    "urllib.error.URLError": Category.TRANSIENT,
    "smtplib.SMTPServerDisconnected": Category.TRANSIENT,
    "smtplib.SMTPConnectError": Category.TRANSIENT,
    "httpx.TransportError": Category.TRANSIENT,
    "requests.exceptions.ConnectionError": Category.TRANSIENT,
    "requests.exceptions.Timeout": Category.TRANSIENT,
    "urllib3.exceptions.TimeoutError": Category.TRANSIENT,
    "aiohttp.client_exceptions.ClientConnectionError": Category.TRANSIENT,
    "psycopg.OperationalError": Category.TRANSIENT,
    "psycopg_pool.PoolTimeout": Category.TRANSIENT,
    "redis.exceptions.ConnectionError": Category.TRANSIENT,
    "redis.exceptions.TimeoutError": Category.TRANSIENT,
    "botocore.exceptions.EndpointConnectionError": Category.TRANSIENT,
    # somebody must be let in first
    "builtins.PermissionError": Category.AUTH,
    "smtplib.SMTPAuthenticationError": Category.AUTH,
    "builtins.FileNotFoundError": Category.MISSING,
    # wants a deploy, not a retry
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
}
"""Full class name -> category; looked up for each class of the exception's line of inheritance, nearest first."""

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
"""SQLSTATE, or its first two characters, -> category; the longer one first."""

FIRST_SERVER_ERROR = 500


def category_of(error: BaseException) -> Category:
    """Classify an exception that a handler let through."""
    status = status_of(error)
    if status is not None:
        if status >= FIRST_SERVER_ERROR:
            return Category.TRANSIENT
        if status in BY_STATUS:
            return BY_STATUS[status]
    sqlstate = _read(error, "sqlstate") or _read(error, "pgcode")
    if isinstance(sqlstate, str):
        found = BY_SQLSTATE.get(sqlstate) or BY_SQLSTATE.get(sqlstate[:2])
        if found is not None:
            return found
    for cls in type(error).__mro__:
        found = BY_CLASS.get(f"{cls.__module__}.{cls.__qualname__}")
        if found is not None:
            return found
    return Category.OTHER


def status_of(error: BaseException) -> int | None:
    """The HTTP status an exception carries (httpx, requests, aiohttp, urllib), or None."""
    response = _read(error, "response")
    candidates = (
        None if response is None else _read(response, "status_code"),
        _read(error, "status_code"),
        _read(error, "status"),
        _read(error, "code"),
    )
    return next((c for c in candidates if isinstance(c, int) and not isinstance(c, bool) and 100 <= c < 600), None)  # noqa: PLR2004 # HTTP


def _read(thing: object, name: str) -> object:
    """getattr that survives whatever a property of somebody's exception does."""
    try:
        return getattr(thing, name, None)
    except Exception:  # noqa: BLE001 # the exception of a property of an exception tells nobody anything
        return None
