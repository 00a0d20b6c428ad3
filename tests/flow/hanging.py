"""Handlers whose import does not end."""

import time

from redrive import Handlers

jobs = Handlers()

while True:
    time.sleep(1)
