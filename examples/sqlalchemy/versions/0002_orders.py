"""Make the orders."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "orders",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("customer", sa.String, nullable=False),
    )


def downgrade() -> None:
    """Drop it."""
    op.drop_table("orders")
