"""Delivery of a report to a webhook of Slack's form.

Its URL is a secret, because it lets everybody post. So it comes from a variable or a
file, and no error shows it.
"""

import re
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.error import HTTPError, URLError
from urllib.parse import SplitResult, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

import msgspec

from redrive.errors import RedriveError, SettingsError

if TYPE_CHECKING:
    from redrive.settings import Settings

TIMEOUT_SECONDS = 30
WEBHOOK = "REDRIVE_REPORT_WEBHOOK_URL"
_PLAIN = re.compile(r"[!-~]+")
"""Characters that a URL may have in a request."""


class CannotSend(RedriveError):
    """The report could not be sent."""


class _NoRedirects(HTTPRedirectHandler):
    """Refuse redirects: the report must not go to another address."""

    def redirect_request(self, *_: object, **__: object) -> None:
        """Return no request, so the answer counts as an error."""


def webhook(settings: "Settings") -> SplitResult:
    """Return the URL of the webhook. Raises SettingsError if it is missing or wrong."""
    url = _split(_text_of(settings))
    if url is None or url.scheme not in {"https", "http"} or not url.hostname:
        msg = f"{WEBHOOK} must be a URL that begins with https:// or http:// and names a host"
        raise SettingsError(msg)

    if not _PLAIN.fullmatch(url.geturl()):
        msg = (
            f"{WEBHOOK} has a space or a character that is not ASCII; encode it as %20"
        )
        raise SettingsError(msg)

    if url.username is not None:
        msg = f"{WEBHOOK} has a user or password; webhooks take neither, so remove it"
        raise SettingsError(msg)

    return url


def post(url: SplitResult, text: str) -> None:
    """Post a text to a webhook.

    Raises:
        CannotSend: the webhook does not answer, or refuses.
    """
    body = msgspec.json.encode({"text": text})
    headers = {"content-type": "application/json"}
    request = Request(url.geturl(), body, headers)  # noqa: S310 # http or https, see webhook()

    try:
        build_opener(_NoRedirects).open(request, timeout=TIMEOUT_SECONDS).close()
    except HTTPError as error:
        msg = f"the webhook refused the report: HTTP {error.code}"
        raise CannotSend(msg) from None
    except (HTTPException, OSError) as error:
        msg = f"the webhook cannot be reached: {_why(error)}"
        raise CannotSend(msg) from None


def _why(error: Exception) -> str:
    """Describe an error without the texts that may hold a URL or a password."""
    match error:
        case URLError(reason=OSError() as reason):
            return _why(reason)
        case OSError(strerror=str() as text):
            return text
        case _:
            return type(error).__name__


def _text_of(settings: "Settings") -> str:
    """Return the setting, or the content of its file."""
    if settings.report_webhook_url is not None:
        return settings.report_webhook_url
    if settings.report_webhook_url_file is not None:
        return _read(f"{WEBHOOK}_FILE", settings.report_webhook_url_file)

    msg = f"{WEBHOOK} is not set; set it, or {WEBHOOK}_FILE to a file that has it"
    raise SettingsError(msg)


def _split(text: str) -> SplitResult | None:
    """Return the parts of a URL; None if its port is no number."""
    try:
        url = urlsplit(text.strip())
        # The port is checked only when it is read.
        _ = url.port
    except ValueError:
        return None

    return url


def _read(variable: str, file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = "it is not text"
        if isinstance(error, OSError):
            why = str(error.strerror)

        msg = f"{variable} is {file}; it cannot be read: {why}"
        raise SettingsError(msg) from None
