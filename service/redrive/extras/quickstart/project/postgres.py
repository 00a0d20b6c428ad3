"""A Postgres to try things on, until Ctrl-C; what is in it goes with it: make
postgres.
"""

import contextlib
import time

from redrive.testing import postgres

if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt), postgres() as url:
        addresses = f"REDRIVE_DATABASE_URL={url} DATABASE_URL={url}"
        print(
            f"In another terminal:  export {addresses} REDRIVE_HANDLERS=handlers:jobs",
            flush=True,
        )
        while True:
            time.sleep(3600)
