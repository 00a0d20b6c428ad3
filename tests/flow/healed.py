"""An application before and after a deploy that mends one of its two bugs."""

from typing import Any

from redrive import Handlers, Heal, Job
from tests.flow.handlers import note

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


@broken.handle("call")
def call(payload: dict[str, Any]) -> None:
    raise ConnectionError("503 from hooks.example")


@mended.handle("call", heal=Heal())
def call_again(payload: dict[str, Any], job: Job) -> None:
    note("start", job)
    note("end", job)
