"""The API as its clients see it, and what is in the database then."""

import os
import sys
from collections.abc import AsyncIterator, Iterator

import psycopg
import pytest
from anyio import run_process
from httpx import ASGITransport, AsyncClient

from orders import api
from redrive.testing import assert_enqueued, enqueued, postgres


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with postgres() as url, pytest.MonkeyPatch.context() as patch:
        patch.setenv("DATABASE_URL", url)
        patch.setenv("REDRIVE_DATABASE_URL", url)
        yield url


@pytest.fixture
async def client(url: str) -> AsyncIterator[AsyncClient]:
    async with (
        api.router.lifespan_context(api),
        AsyncClient(transport=ASGITransport(api), base_url="http://orders") as client,
    ):
        yield client


@pytest.mark.anyio
async def test_an_order_that_is_refused_takes_its_job_along(
    client: AsyncClient, url: str
) -> None:
    taken = await client.post("/orders", json={"customer": "ada"})
    refused = await client.post("/orders", json={"customer": "ada"})

    assert (taken.status_code, refused.status_code) == (201, 409)
    with psycopg.connect(url) as conn:
        assert [job["payload"]["order"] for job in enqueued(conn)] == [
            taken.json()["id"]
        ]


@pytest.mark.anyio
async def test_an_order_is_confirmed_by_a_worker(client: AsyncClient, url: str) -> None:
    answer = await client.post("/orders", json={"customer": "bob"})

    with psycopg.connect(url) as conn:
        assert_enqueued(
            conn, "order.confirm", {"order": answer.json()["id"]}, queue="mail"
        )
    done = await run_process(
        [
            sys.executable,
            "-m",
            "redrive",
            "worker",
            "--handlers",
            "orders:jobs",
            "--until-empty",
        ],
        env=os.environ | {"REDRIVE_HTTP_PORT": "0"},
    )
    assert f"we have your order {answer.json()['id']}" in done.stdout.decode()
