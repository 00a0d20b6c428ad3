"""A handler whose payload is a pydantic model, which takes a runner twice as long to import."""

from pydantic import BaseModel, SecretStr

from redrive import Handlers, Job
from tests.flow.handlers import note

HANDLERS = "tests.flow.typed_work:jobs"
jobs = Handlers()


class Invoice(BaseModel):
    number: int
    card: SecretStr = SecretStr("")


@jobs.handle("work.typed")
def work_typed(payload: Invoice, job: Job) -> None:
    note("start", job)
