"""The mail provider of the demo: an SMTP server on loopback that saves mails as files.

It runs in its own process, so it can be down: python -m redrive.extras.demo.mail PORT
DIRECTORY
"""

import asyncio
import email
import os
import sys
from pathlib import Path

from aiosmtpd.smtp import SMTP, Envelope, Session


class Mailbox:
    """Mailbox that keeps each mail once, by its Message-ID, like a real provider."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    # The name and the arguments are aiosmtpd's.
    async def handle_DATA(  # noqa: N802
        self,
        server: SMTP,  # noqa: ARG002
        session: Session,  # noqa: ARG002
        envelope: Envelope,
    ) -> str:
        """Take one mail."""
        content = envelope.original_content or b""
        key, _, _ = str(
            email.message_from_bytes(content).get("Message-ID", "")
        ).partition("@")
        name = "".join(c for c in key if c.isalnum() or c == "-")

        # The file gets its name when it is complete.
        written = self._directory / f".{name}.{os.getpid()}"
        written.write_bytes(content)
        written.replace(self._directory / f"{name or 'unnamed'}.eml")

        return "250 OK"


async def serve(port: int, directory: Path) -> None:
    """Serve until standard input ends, which happens when the demo ends."""
    loop = asyncio.get_running_loop()
    gone = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), gone.set)
    server = await loop.create_server(
        lambda: SMTP(Mailbox(directory), hostname="mail.example", enable_SMTPUTF8=True),
        "127.0.0.1",
        port,
    )

    async with server:
        await gone.wait()

    os._exit(0)  # open connections must not keep it up


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), Path(sys.argv[2])))
