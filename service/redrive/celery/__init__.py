"""Dead letters of Celery's tasks: kept in Redrive, and sent again through Celery.

In the module of the Celery app:

    import redrive.celery

    redrive.celery.install(app)

In a module for Redrive's worker, named by REDRIVE_HANDLERS:

    jobs = redrive.celery.sender(app, database_url=URL)
"""

from redrive.celery.install import install
from redrive.celery.sender import sender

__all__ = ["install", "sender"]
