"""Bring Redrive's schema, as `redrive migrate` does.

After an upgrade of Redrive add another revision that does the same: it applies what is missing.
"""

from alembic import op

import redrive

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Apply what is missing, each step in a transaction of its own."""
    with op.get_context().autocommit_block():
        redrive.migrate(op.get_bind().connection.driver_connection)


def downgrade() -> None:
    """Keep it: Redrive's schema goes forward only, and may hold jobs."""
