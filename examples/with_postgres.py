"""Run a command beside a Postgres that has Redrive's schema and is thrown away: DATABASE_URL.

python with_postgres.py python manage.py test
"""

import os
import subprocess
import sys

from redrive.testing import postgres

if __name__ == "__main__":
    with postgres() as url:
        environment = os.environ | {"DATABASE_URL": url}
        sys.exit(subprocess.run(sys.argv[1:], check=False, env=environment).returncode)
