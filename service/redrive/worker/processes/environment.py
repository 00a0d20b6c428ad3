"""Environment of runners: without the variables that open the database."""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

SECRETS = frozenset({"PGPASSWORD", "REDRIVE_DATABASE_URL", "REDRIVE_LISTEN_URL"})
"""Variables of the worker. Runners get them only if a setting names them in full."""

NEEDED = (
    "HOME",
    "LANG",
    "LC_*",
    "LD_LIBRARY_PATH",
    "OTEL_*",
    "PATH",
    "PYTHON*",
    "REDRIVE_ENCRYPTION_KEYS",
    "REDRIVE_ENCRYPTION_KEYS_FILE",
    "SSL_CERT_*",
    "TMPDIR",
    "TZ",
)
"""Variables that every runner gets."""


EVERYTHING = ("*",)


def handed_over(environment: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    """Return the variables that runners get: `names`, with `*` at will, and NEEDED."""
    asked = (*NEEDED, *names)
    return {
        name: value
        for name, value in environment.items()
        if name in asked
        or (
            name not in SECRETS and any(fnmatchcase(name, pattern) for pattern in asked)
        )
    }
