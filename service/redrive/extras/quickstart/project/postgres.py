"""A Postgres to try things on, until Ctrl-C; what is in it goes with it: make
postgres.
"""

import contextlib
import time

from redrive.testing import postgres

if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt), postgres() as url:
        variables = f"REDRIVE_DATABASE_URL={url} REDRIVE_HANDLERS=handlers:jobs"
        print(f"In another terminal:  export {variables}", flush=True)
        while True:
            time.sleep(3600)
