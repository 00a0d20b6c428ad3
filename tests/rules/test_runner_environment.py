"""What runners get of their worker's environment."""

import pytest

from redrive.errors import SettingsError
from redrive.settings import load
from redrive.worker.processes.environment import handed_over

WORKERS = {
    "PATH": "/bin",
    "LC_ALL": "C",
    "PYTHONPATH": "/app",
    "OTEL_SERVICE_NAME": "shop",
    "REDRIVE_DATABASE_URL": "postgresql://redrive:hush@db/redrive",
    "REDRIVE_DATABASE_URL_FILE": "/secrets/url",
    "REDRIVE_ENCRYPTION_KEYS": "k1 hush",
    "PGPASSWORD": "hush",
    "STRIPE_KEY": "sk_1",
    "SHOP_DATABASE_URL": "postgresql://shop@db/shop",
}
SECRET = {"REDRIVE_DATABASE_URL", "PGPASSWORD"}
OWN = {"PATH", "LC_ALL", "PYTHONPATH", "OTEL_SERVICE_NAME", "REDRIVE_ENCRYPTION_KEYS"}


@pytest.mark.parametrize(
    ("setting", "given"),
    [
        (None, WORKERS.keys() - SECRET),
        ("*", WORKERS.keys() - SECRET),
        ("*,PGPASSWORD", WORKERS.keys() - {"REDRIVE_DATABASE_URL"}),
        ("REDRIVE_*", {*OWN, "REDRIVE_DATABASE_URL_FILE"}),
        ("STRIPE_*, SHOP_DATABASE_URL,", {*OWN, "STRIPE_KEY", "SHOP_DATABASE_URL"}),
        ("REDRIVE_DATABASE_URL", {*OWN, "REDRIVE_DATABASE_URL"}),
    ],
)
def test_runners_get_what_is_named_and_no_secret_by_a_pattern(
    setting: str | None, given: set[str]
):
    """All of it was inherited."""
    names = load(runner_env=setting).runner_env_names()

    assert handed_over(WORKERS, names) == {name: WORKERS[name] for name in given}


@pytest.mark.parametrize("setting", ["STRIPE KEY", "A=b", "[a-z]", "1X"])
def test_what_is_no_name_is_refused(setting: str):
    with pytest.raises(
        SettingsError, match="REDRIVE_RUNNER_ENV must be names of variables"
    ) as no:
        load(runner_env=setting).runner_env_names()

    assert setting not in str(no.value)
