"""What the shop keeps, and how to reach it."""

import os
from contextlib import AbstractContextManager
from decimal import Decimal

from sqlalchemy import ForeignKey, create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker

sessions = sessionmaker()


class Table(DeclarativeBase):
    """What all tables have in common."""


class Account(Table):
    """What the bank knows of a customer."""

    __tablename__ = "accounts"

    customer: Mapped[str] = mapped_column(primary_key=True)
    limit: Mapped[Decimal]


class Order(Table):
    """An order; `placed`, and `paid` once there is a payment."""

    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    customer: Mapped[str]
    amount: Mapped[Decimal]
    state: Mapped[str] = mapped_column(default="placed")


class Payment(Table):
    """Money that came in."""

    __tablename__ = "payments"

    order: Mapped[int] = mapped_column(ForeignKey(Order.id), primary_key=True)
    reference: Mapped[str]


def begin() -> AbstractContextManager[Session]:
    """Begin a transaction, of a request or a job; it commits at the end of the block.

    The database is the one that SHOP_DATABASE_URL names.
    """
    if sessions.kw["bind"] is None:
        url = os.environ["SHOP_DATABASE_URL"].replace(
            "postgresql:", "postgresql+psycopg:", 1
        )
        sessions.configure(bind=create_engine(url))
    return sessions.begin()


def make_tables() -> None:
    """Make the tables that are missing."""
    with begin() as session:
        Table.metadata.create_all(session.connection())
