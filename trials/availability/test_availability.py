"""Jobs survive what Patroni, etcd, HAProxy and PgBouncer survive."""

import pytest

from tests.programs import missing
from trials.availability.stack import absent
from trials.availability.trial import CAUSELESS, run


@pytest.mark.availability
@pytest.mark.slow
@pytest.mark.parametrize("is_synchronous", [True, False])
def test_nothing_is_lost_but_what_postgres_lost(capsys, is_synchronous: bool):
    if absent():
        missing(", ".join(absent()), "Debian: tools/programs availability")
    with capsys.disabled():
        print()
        seen = run(print, is_synchronous=is_synchronous)
        print(seen.told())

    assert not any(seen.failures.values()), seen.told()
    lost = {row.fault for row in seen.rows if row.lost}
    assert lost == set() if is_synchronous else not lost & CAUSELESS
