"""Gateway to other queues: their dead letters come in, and redriven ones go back.

A file names the dead letter queues of other systems. The intake reads them, commits
each message as an open dead letter, and only then acknowledges it. A redrive sends the
message back to the queue in which it died. Its job succeeds if the message does not
come back dead within a time.

    rabbitmq:
      orders: {url_file: /secrets/rabbitmq, queue: orders.dead, verdict_seconds: 60}
"""
