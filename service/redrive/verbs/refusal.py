"""Refusals of requests, with the status of the answer by HTTP."""


class Refused(Exception):
    """The request is refused; `status` is the HTTP status."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


class Invalid(Refused):
    """The request is wrong; on the command line it is bad usage."""

    def __init__(self, text: str) -> None:
        super().__init__(400, text)


class Missing(Refused):
    """There is no such thing."""

    def __init__(self, text: str) -> None:
        super().__init__(404, text)


class Conflict(Refused):
    """The change is impossible now, or something has changed since the preview."""

    def __init__(self, text: str) -> None:
        super().__init__(409, text)
