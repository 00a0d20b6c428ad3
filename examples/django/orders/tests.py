"""python manage.py test."""

import json
import os
import subprocess
import sys
from io import StringIO
from unittest.mock import patch

from django.core import mail
from django.core.exceptions import ValidationError
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.test import TestCase, TransactionTestCase

from orders.jobs import confirm
from orders.models import Order
from redrive.django.testing import run_enqueued
from redrive.testing import assert_enqueued, enqueued


def place() -> int:
    """Place an order as the view does. Returns its number."""
    with transaction.atomic():
        order = Order.objects.create(customer="ada@example.org")
        confirm.enqueue(connection, {"order": order.pk})
    return order.pk


class Orders(TestCase):
    """What requests and jobs do, each test in a transaction that is rolled back."""

    def test_an_order_and_its_job_come_together(self) -> None:
        answer = self.client.post("/orders", {"customer": "ada@example.org"})

        assert_enqueued(
            connection, "order.confirm", {"order": answer.json()["id"]}, queue="mail"
        )

    def test_an_order_that_is_refused_takes_its_job_along(self) -> None:
        with self.assertRaises(ValidationError):
            self.client.post("/orders", {"customer": "nobody"})

        self.assertEqual((Order.objects.count(), enqueued(connection)), (0, []))

    def test_the_job_confirms_the_order(self) -> None:
        number = place()

        (ended,) = run_enqueued().values()

        self.assertEqual(ended.outcome, "completed")
        self.assertTrue(Order.objects.get(pk=number).confirmed)
        self.assertEqual([message.to for message in mail.outbox], [["ada@example.org"]])
        self.assertEqual(enqueued(connection), [])

    def test_an_order_that_is_gone_is_a_failure(self) -> None:
        with transaction.atomic():
            confirm.enqueue_many(connection, [{"order": 17}, {"order": 18}])

        failures = {ended.error_class for ended in run_enqueued().values()}

        self.assertEqual(failures, {"orders.models.Order.DoesNotExist"})
        self.assertEqual(len(enqueued(connection)), 2)


class Commands(TransactionTestCase):
    """What manage.py does, with everything committed."""

    def test_no_migration_is_missing(self) -> None:
        call_command("makemigrations", "--check", "--dry-run", verbosity=0)

    def test_a_worker_runs_the_jobs(self) -> None:
        number = place()
        database = connection.settings_dict
        url = "postgresql://{USER}@{HOST}:{PORT}/{NAME}".format_map(database)

        done = subprocess.run(
            [
                sys.executable,
                "manage.py",
                "redrive",
                "worker",
                "--until-empty",
                "--http-port",
                "0",
            ],
            check=True,
            env=os.environ | {"DATABASE_URL": url},
            stdout=subprocess.PIPE,
            text=True,
            timeout=60,
        )

        self.assertIn("To: ada@example.org", done.stdout)
        self.assertTrue(Order.objects.get(pk=number).confirmed)
        self.assertEqual(enqueued(connection), [])

    def test_other_commands(self) -> None:
        place()

        with patch("sys.stdout", new=StringIO()) as said:
            call_command("redrive", "queue", "ls", "--json")
        self.assertEqual(json.loads(said.getvalue())["queue"], "mail")
        with self.assertRaises(CommandError) as caught:
            call_command("redrive", "dlq", "show", "17")
        self.assertEqual(caught.exception.returncode, 2)
