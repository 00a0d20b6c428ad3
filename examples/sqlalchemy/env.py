"""Alembic's environment; what Redrive needs of it is marked."""

import os
from typing import Any

from alembic import context
from sqlalchemy import NullPool, create_engine

from orders import Table


def include_name(name: str | None, kind: str, _: Any) -> bool:
    """Redrive: leave its schema out of what --autogenerate compares, or it drops its tables."""
    return not (kind == "schema" and name == "redrive")


url = os.environ["DATABASE_URL"].replace("postgresql:", "postgresql+psycopg:", 1)
with create_engine(url, poolclass=NullPool).connect() as connection:
    context.configure(
        connection=connection,
        target_metadata=Table.metadata,
        include_schemas=True,
        include_name=include_name,
        transaction_per_migration=True,
    )
    with context.begin_transaction():
        context.run_migrations()
