"""Orders by SQLAlchemy, each with its job, in the transaction of a Session or an AsyncSession."""

from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from redrive import Handlers, Job

jobs = Handlers()


class Table(DeclarativeBase):
    """What all tables have in common."""


class Order(Table):
    """An order."""

    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    customer: Mapped[str]


@jobs.handle("order.confirm", queue="mail")
def confirm(payload: dict[str, int], job: Job) -> None:
    """Tell the customer."""
    print(f"mail: we have your order {payload['order']}, {job.key}")


def place(session: Session, customer: str) -> Order:
    """Place an order, and let its customer be told once this is committed."""
    order = Order(customer=customer)
    session.add(order)
    session.flush()  # gives it an id
    confirm.enqueue(session, {"order": order.id})
    return order


async def place_async(session: AsyncSession, customer: str) -> Order:
    """Do the same where the session is async."""
    order = Order(customer=customer)
    session.add(order)
    await session.flush()
    await confirm.enqueue(session, {"order": order.id})
    return order
