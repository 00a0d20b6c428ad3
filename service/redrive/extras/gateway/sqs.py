"""SQS: read a dead letter queue, and send to the queue from which a message came.

A message has an id of its own, so each is taken in once.
"""

import base64
from collections.abc import Mapping, Sequence
from typing import Any, cast

import boto3  # pyright: ignore[reportMissingTypeStubs]
from botocore.config import Config  # pyright: ignore[reportMissingTypeStubs]
from botocore.exceptions import ClientError  # pyright: ignore[reportMissingTypeStubs]

from redrive.extras.gateway.file import SQS
from redrive.extras.gateway.marks import MARK, mark_of
from redrive.extras.gateway.message import Death, Message, NotSent, Outgoing, instant

AT_ONCE = 10
"""Most messages of one call, by the rules of SQS."""

CALLS = 10
"""Most calls for one batch."""

WAIT_SECONDS = 1
VISIBILITY_SECONDS = 120
"""Time to commit a batch; then SQS delivers its messages again."""

MOST_ATTRIBUTES = 10

ONE_TRY = Config(connect_timeout=10, read_timeout=30, retries={"total_max_attempts": 1})
"""No retry by the library: it could send a message twice, and nobody would know."""

GONE = frozenset({"QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue"})


class Queue:
    """Connection to SQS, for one dead letter queue."""

    def __init__(self, source: SQS) -> None:
        """Make the client, which finds its credentials as each program of AWS."""
        self._source = source
        library: Any = boto3
        self._client: Any = library.client(
            "sqs",
            region_name=source.region,
            endpoint_url=source.endpoint_url,
            config=ONE_TRY,
        )

    def receive(self) -> Sequence[Message]:
        """Return the next messages; none after about a second without any."""
        found: list[Message] = []
        for call in range(CALLS):
            # Only the first call waits; the others take what is there.
            received = self._client.receive_message(
                QueueUrl=self._source.queue_url,
                AttributeNames=["All"],
                MessageAttributeNames=["All"],
                MaxNumberOfMessages=AT_ONCE,
                WaitTimeSeconds=(0 if call else WAIT_SECONDS),
                VisibilityTimeout=VISIBILITY_SECONDS,
            ).get("Messages", [])
            found += map(_message, received)
            if len(received) < AT_ONCE:
                break

        return found

    def acknowledge(self, messages: Sequence[Message]) -> None:
        """Delete messages. SQS delivers a message again if that fails."""
        for at in range(0, len(messages), AT_ONCE):
            entries = [
                {"Id": str(n), "ReceiptHandle": message.handle}
                for n, message in enumerate(messages[at : at + AT_ONCE])
            ]
            self._client.delete_message_batch(
                QueueUrl=self._source.queue_url, Entries=entries
            )

    def send(self, message: Outgoing) -> None:
        """Send a message; return when SQS has it.

        Raises:
            NotSent: its queue does not exist or is not known, or the message has no
                room for the mark.
        """
        try:
            self._client.send_message(
                QueueUrl=self._origin(message.origin),
                MessageBody=message.body.decode(),
                MessageAttributes=_attributes(message),
                **_fifo(message),
            )
        except ClientError as error:
            about = cast("dict[str, Any]", error.response).get("Error", {})
            if about.get("Code") not in GONE:
                raise

            queue = message.origin.get("queue_arn") or "origin_url"
            msg = f"{queue}: the queue does not exist"
            raise NotSent(msg) from None

    def _origin(self, origin: Mapping[str, Any]) -> str:
        """Return the URL of the queue to send to.

        Raises:
            NotSent: neither the message nor the file names it.
        """
        if self._source.origin_url is not None:
            return self._source.origin_url

        arn = origin.get("queue_arn")
        if not arn:
            return self._only_origin()

        *_, account, name = str(arn).split(":")
        found = self._client.get_queue_url(
            QueueName=name, QueueOwnerAWSAccountId=account
        )

        return str(found["QueueUrl"])

    def _only_origin(self) -> str:
        """Return the only queue whose redrive policy names the dead letter queue."""
        urls = self._client.list_dead_letter_source_queues(
            QueueUrl=self._source.queue_url
        ).get("queueUrls", [])
        if len(urls) != 1:
            found = f"{len(urls)} queues have this dead letter queue"
            msg = f"the message does not say from which queue it came, and {found}; set origin_url"
            raise NotSent(msg)

        return str(urls[0])

    def ping(self) -> None:
        """Do nothing: each call makes its own request."""

    def waiting(self) -> int:
        """Return about how many messages wait in the queue."""
        answer = self._client.get_queue_attributes(
            QueueUrl=self._source.queue_url,
            AttributeNames=["ApproximateNumberOfMessages"],
        )
        return int(answer["Attributes"]["ApproximateNumberOfMessages"])

    def close(self) -> None:
        """Close the client. Messages are delivered again after their timeout."""
        self._client.close()


def _message(found: Mapping[str, Any]) -> Message:
    system: dict[str, str] = found.get("Attributes", {})
    attributes: dict[str, Any] = dict(found.get("MessageAttributes", {}))
    body = str(found["Body"]).encode()

    mark = attributes.pop(MARK, {}).get("StringValue")
    headers = {name: _encoded(value) for name, value in attributes.items()}

    arn = system.get("DeadLetterQueueSourceArn")
    group = system.get("MessageGroupId")

    return Message(
        handle=found["ReceiptHandle"],
        body=body,
        origin={"queue_arn": arn, "group": group},
        headers=headers,
        death=_death(system, arn),
        source_id=found["MessageId"],
        is_unique=True,
        mark=mark_of(mark, body),
    )


def _death(system: Mapping[str, str], arn: str | None) -> Death:
    """Return what SQS says of a death: it keeps no error."""
    message = "received too often"
    name = (arn or "").rpartition(":")[2]
    if name:
        message += f" from {name}"

    # SQS counts on in the dead letter queue, so one of them is the gateway's own.
    received = int(system.get("ApproximateReceiveCount", 1)) - 1
    sent_ms = int(system.get("SentTimestamp", 0))

    return Death(
        error_class="sqs.MaxReceiveCount",
        message=message,
        attempts=max(1, received),
        created_at=instant(sent_ms / 1000),
    )


def _encoded(attribute: Mapping[str, Any]) -> dict[str, str]:
    """Return an attribute as JSON."""
    if "BinaryValue" in attribute:
        text = base64.b64encode(attribute["BinaryValue"]).decode()
        return {"type": attribute["DataType"], "base64": text}
    return {"type": attribute["DataType"], "text": attribute.get("StringValue", "")}


def _decoded(attribute: Mapping[str, str]) -> dict[str, Any]:
    value: dict[str, Any] = {"DataType": attribute["type"]}
    if "base64" in attribute:
        value["BinaryValue"] = base64.b64decode(attribute["base64"])
    else:
        value["StringValue"] = attribute["text"]

    return value


def _attributes(message: Outgoing) -> dict[str, Any]:
    """Return the attributes of a message and its mark.

    Raises:
        NotSent: there is no room for the mark.
    """
    if len(message.headers) >= MOST_ATTRIBUTES:
        msg = f"the message has {MOST_ATTRIBUTES} attributes, and SQS allows no more; remove one"
        raise NotSent(msg)

    mark = {"DataType": "String", "StringValue": str(message.mark)}
    own = {name: _decoded(value) for name, value in message.headers.items()}

    return own | {MARK: mark}


def _fifo(message: Outgoing) -> dict[str, str]:
    """Return the arguments for a FIFO queue, which drops a message sent twice."""
    group = message.origin.get("group")
    if not group:
        return {}

    return {
        "MessageGroupId": group,
        "MessageDeduplicationId": f"{message.mark.job}-{message.mark.redrives}",
    }
