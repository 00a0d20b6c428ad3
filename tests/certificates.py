"""Certificates by openssl, for servers that tests talk TLS to."""

import subprocess
from pathlib import Path


def certificate(
    home: Path, name: str, *, names: str = "", signer: Path | None = None
) -> Path:
    """Make a certificate, its key beside it as .key; where it is.

    Args:
        home: the directory for both.
        name: of the files, and its common name.
        names: whom it stands for, as openssl says it: DNS:db.example,IP:127.0.0.1.
        signer: the certificate of the authority; without one it is an authority itself.
    """
    made = home / f"{name}.crt"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-noenc",
        "-days",
        "2",
        "-subj",
        f"/CN={name}",
    ]
    if names:
        command += ["-addext", f"subjectAltName={names}"]
    if signer is not None:
        command += ["-CA", str(signer), "-CAkey", str(signer.with_suffix(".key"))]
    command += ["-keyout", str(made.with_suffix(".key")), "-out", str(made)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return made
