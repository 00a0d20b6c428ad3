"""Links out of the console: only to configured web addresses."""

import pytest

from redrive.errors import SettingsError
from redrive.extras.console.links import Links

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


def test_links_are_filled_in():
    links = Links.read(
        "https://t.example/trace/{trace_id}?o=1", "http://l.example/?q={job_id}"
    )

    assert links.to_trace(TRACE) == f"https://t.example/trace/{TRACE}?o=1"
    assert links.to_logs(17) == "http://l.example/?q=17"
    assert Links().to_trace(TRACE) is None
    assert Links().to_logs(17) is None


@pytest.mark.parametrize(
    "trace", [None, "", 5, "x" * 32, '"><script>', TRACE + "/", TRACE.upper()]
)
def test_what_is_no_trace_leads_nowhere(trace: object):
    assert Links.read("https://t.example/{trace_id}", None).to_trace(trace) is None


@pytest.mark.parametrize(
    "text",
    [
        "javascript:alert({trace_id})",
        "data:text/html,{trace_id}",
        "//t.example/{trace_id}",
        "https:///{trace_id}",
        "https://t.example/",
        "https://t.example/{trace_id}{job_id}",
        "https://t.example/{trace_id}/{trace_id}",
        "https://t.example/a b{trace_id}",
        "https://[::1/{trace_id}",
    ],
)
def test_what_is_no_address_is_refused(text: str):
    with pytest.raises(
        SettingsError,
        match="REDRIVE_CONSOLE_TRACE_URL must be an http or https address",
    ) as error:
        Links.read(text, None)

    assert "https://traces.example/trace/{trace_id}" in str(error.value)
