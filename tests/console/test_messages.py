"""Messages of failures in the console's lists."""

from redrive.extras.console.pages.render import FILTERS, cell

LONG = "401\nFor more information check: https://httpstatuses.com/401 " + "x" * 3000


def test_a_message_in_a_list_is_one_clamped_line_without_boilerplate() -> None:
    for shown in (cell(LONG, "message"), FILTERS["brief"](LONG)):
        assert shown.startswith("401 xxx")
        assert "\n" not in shown
        assert len(shown) == 200
