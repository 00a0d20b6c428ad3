"""The shop's bank: somebody else's API in a real one."""

from decimal import Decimal

from sqlalchemy.orm import Session

from shop.tables import Account

LIMIT = Decimal(1000)


class Declined(Exception):
    """The bank does not pay, and will not when it is asked again."""


def charge(session: Session, customer: str, amount: Decimal, key: str) -> str:
    """Take the money. Returns a reference, the same for the same `key`.

    Raises:
        Declined: it is more than the customer's limit.
    """
    account = session.get(Account, customer)
    limit = LIMIT if account is None else account.limit
    if amount > limit:
        msg = f"{amount} is over the limit of {limit}"
        raise Declined(msg)
    return f"bank-{key}"
