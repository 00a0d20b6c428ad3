"""Serve the shop while one looks at it: a Postgres that is thrown away, the API and a worker."""

import os
import signal
import subprocess
import sys

import uvicorn

from redrive.testing import postgres

WORKER = ("worker", "--handlers", "shop.jobs:jobs", "--http-port", "0")


def main() -> None:
    """Serve until Ctrl-C or SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with postgres() as url:
        os.environ |= {"REDRIVE_DATABASE_URL": url, "SHOP_DATABASE_URL": url}
        print(f"In another terminal:  export REDRIVE_DATABASE_URL={url}", flush=True)
        worker = subprocess.Popen([sys.executable, "-m", "redrive", *WORKER])
        try:
            uvicorn.run(
                "shop.api:create",
                factory=True,
                port=int(os.environ.get("PORT", "8000")),
            )
        finally:
            worker.terminate()
            worker.wait()


if __name__ == "__main__":
    main()
