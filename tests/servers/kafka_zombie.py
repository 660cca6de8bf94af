"""A driver that pauses after sending its records, right before it commits the transaction.

Run by tests: `python -m tests.servers.kafka_zombie BOOTSTRAP TOPIC DIRECTORY`. It prints "sent",
continues when it receives a line, and prints the outcome.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from penstock.connectors.kafka.sink.transactions import TransactionalProducer
from tests.contracts.sink_harness import Attempt
from tests.servers.kafka_sink_case import exactly_once_case


def main(bootstrap: str, topic: str, directory: str) -> None:
    commit = TransactionalProducer._commit

    def stop_before(self: TransactionalProducer, producer: Any, sender: Any) -> None:
        producer.flush()
        print("sent", flush=True)
        sys.stdin.readline()
        commit(self, producer, sender)

    case = exactly_once_case(SimpleNamespace(bootstrap=bootstrap), Path(directory), topic)
    attempt = Attempt(case, Path(directory))
    attempt.publish(["a"], ["x" * 100_000])
    committables = attempt.snapshot().committables
    Path(directory, "committables").write_text("\n".join(data.hex() for data in committables))
    TransactionalProducer._commit = stop_before  # type: ignore[method-assign]
    try:
        attempt.commit(committables)
    except Exception as error:
        print(f"{type(error).__name__}: {error}", flush=True)
    else:
        print("committed", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
