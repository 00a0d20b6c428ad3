"""Delivery of a report: to a webhook of Slack's form, or by mail.

Both addresses are secrets: a webhook's URL lets everybody post, and the mail server's
has a password. So they come from variables or files, and no error shows them.
"""

import re
import smtplib
import ssl
from collections.abc import Collection, Sequence
from email.message import EmailMessage
from email.utils import formatdate, make_msgid
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

import msgspec

from redrive.errors import RedriveError, SettingsError

if TYPE_CHECKING:
    from redrive.settings import Settings

TIMEOUT_SECONDS = 30
TLS_PORT, STARTTLS_PORT, PLAIN_PORT = 465, 587, 25
WEBHOOK, SMTP = "REDRIVE_REPORT_WEBHOOK_URL", "REDRIVE_REPORT_SMTP_URL"
_PLAIN = re.compile(r"[!-~]+")
"""Characters that a URL may have in a request."""
PORTS = {"smtps": TLS_PORT, "smtp+starttls": STARTTLS_PORT, "smtp": PLAIN_PORT}


class CannotSend(RedriveError):
    """The report could not be sent."""


class Mail(NamedTuple):
    """Envelope of a mail."""

    sender: str
    to: Sequence[str]
    title: str


class _NoRedirects(HTTPRedirectHandler):
    """Refuse redirects: the report must not go to another address."""

    def redirect_request(self, *_: object, **__: object) -> None:
        """Return no request, so the answer counts as an error."""


def webhook(settings: "Settings") -> SplitResult:
    """Return the URL of the webhook. Raises SettingsError if it is missing or wrong."""
    url = _parsed(
        WEBHOOK,
        text=settings.report_webhook_url,
        file=settings.report_webhook_url_file,
        schemes=("https", "http"),
    )
    if not _PLAIN.fullmatch(url.geturl()):
        msg = (
            f"{WEBHOOK} has a space or a character that is not ASCII; encode it as %20"
        )
        raise SettingsError(msg)

    if url.username is not None:
        msg = f"{WEBHOOK} has a user or password; webhooks take neither, so remove it"
        raise SettingsError(msg)

    return url


def mail_server(settings: "Settings") -> SplitResult:
    """Return the URL of the mail server. Raises SettingsError as `webhook` does."""
    url = _parsed(
        SMTP,
        text=settings.report_smtp_url,
        file=settings.report_smtp_url_file,
        schemes=tuple(PORTS),
    )
    if url.scheme == "smtp" and url.username:
        msg = (
            f"{SMTP} has a user, and smtp:// would send the password without TLS;"
            " use smtp+starttls:// or smtps://"
        )
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
        raise CannotSend(f"the webhook cannot be reached: {_why(error)}") from None


def send(url: SplitResult, mail: Mail, text: str, page: str) -> None:
    """Mail a report as plain text and as HTML.

    Args:
        text: the report as plain text.
        page: the same report as HTML.

    Raises:
        CannotSend: the server does not answer, or refuses.
    """
    message = EmailMessage()
    message["Subject"] = mail.title
    message["From"] = mail.sender
    message["To"] = ", ".join(mail.to)
    message["Date"] = formatdate()
    message["Message-ID"] = make_msgid()

    message.set_content(text)
    message.add_alternative(page, subtype="html")

    try:
        with _connected(url) as server:
            refused = server.send_message(message)
    except (smtplib.SMTPException, OSError) as error:
        raise CannotSend(f"the mail was not sent: {_why(error)}") from None

    # The server takes the mail even if it refuses some of the addresses.
    if refused:
        msg = f"the mail server refused the report to {', '.join(refused)}"
        raise CannotSend(msg)


def _connected(url: SplitResult) -> smtplib.SMTP:
    """Connect to the mail server and log in."""
    server = _server(url)
    if url.username:
        password = unquote(url.password or "")
        server.login(unquote(url.username), password)

    return server


def _server(url: SplitResult) -> smtplib.SMTP:
    """Connect to the mail server, with TLS as the scheme says."""
    host = url.hostname or ""
    port = url.port or PORTS[url.scheme]
    tls = ssl.create_default_context()

    if url.scheme == "smtps":
        return smtplib.SMTP_SSL(host, port, timeout=TIMEOUT_SECONDS, context=tls)

    server = smtplib.SMTP(host, port, timeout=TIMEOUT_SECONDS)
    if url.scheme == "smtp+starttls":
        server.starttls(context=tls)

    return server


def _why(error: Exception) -> str:
    """Describe an error without the texts that may hold a URL or a password."""
    match error:
        # These are OSErrors, too, so they come before the case of OSError.
        case smtplib.SMTPResponseException(smtp_code=code):
            return f"{type(error).__name__} {code}"
        case URLError(reason=OSError() as reason):
            return _why(reason)
        case OSError(strerror=str() as text):
            return text
        case _:
            return type(error).__name__


def _parsed(
    variable: str, text: str | None, file: Path | None, schemes: Collection[str]
) -> SplitResult:
    """Return the URL of a setting or its file.

    Raises:
        SettingsError: it is missing, unreadable or of another scheme.
    """
    url = _split(_text_of(variable, text, file))
    if url is not None and url.scheme in schemes and url.hostname:
        return url

    known = " or ".join(f"{scheme}://" for scheme in schemes)
    msg = f"{variable} must be a URL that begins with {known} and names a host"
    raise SettingsError(msg)


def _text_of(variable: str, text: str | None, file: Path | None) -> str:
    """Return a setting, or the content of its file."""
    if text is not None:
        return text
    if file is not None:
        return _read(f"{variable}_FILE", file)

    msg = f"{variable} is not set; set it, or {variable}_FILE to a file that has it"
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
        return file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        msg = f"{variable} is {file}; it cannot be read: {why}"
        raise SettingsError(msg) from None
