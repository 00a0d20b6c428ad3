"""A dead letter of another system says where to look for it there."""

from redrive.dead_letters.origin import origin


def test_the_place_and_the_id_of_a_message():
    kept = {"queue": "orders", "properties": {"message_id": "m-17", "priority": 4}}
    headers = {"source": "rabbitmq.orders", "gateway": {"origin": kept}}

    assert origin(headers) == {
        "source": "rabbitmq.orders",
        "died in": "orders",
        "message id": "m-17",
    }


def test_the_id_of_a_task():
    headers = {"source": "celery", "celery": {"id": "4711", "worker": "celery@web1"}}

    assert origin(headers) == {
        "source": "celery",
        "task id": "4711",
        "ran on": "celery@web1",
    }


def test_headers_that_a_producer_made_up():
    assert origin({"gateway": {"origin": {"queue": "orders"}}}) == {}
    assert origin({"source": "x", "gateway": [1], "celery": {"id": {}}}) == {
        "source": "x"
    }
