"""An application before and after a deploy that mends one of its two bugs."""

from typing import Any

from redrive import Handlers, Heal

broken = Handlers()
mended = Handlers()


@broken.handle("bill")
def bill(payload: dict[str, Any]) -> None:
    payload["n"].no_such_method()


@broken.handle("ship")
def ship(payload: dict[str, Any]) -> None:
    payload["n"].no_such_method_either()


@mended.handle("bill", heal=Heal(max_rate=50))
def bill_again(payload: dict[str, Any]) -> None:
    pass


mended.handle("ship", heal=Heal())(ship)
