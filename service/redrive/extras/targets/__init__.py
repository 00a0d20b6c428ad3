"""HTTP targets: jobs that call an HTTP endpoint, written in any language.

A file routes kinds to URLs. The runner sends the payload and reads the answer. 2xx
completes the job. 408, 425, 429, 5xx and connection errors are retried, no sooner than
Retry-After says. Other answers are final.

    allowed_hosts: [billing.internal]
    allowed_networks: [10.0.0.0/8]
    targets:
      invoice.charge: {url: "https://billing.internal/charge", timeout: 30}
      mail.*: {url: "https://billing.internal/mail", signing_key_file: /secrets/key}
"""
