"""The producing client of the kill test: a process of its own; nothing of it dies with the daemon.

Logs every request before it is sent and every acknowledgement when it is read, each with one write,
and goes on until the connection breaks.

Usage: kill_client.py PORT TOPIC LOG ROUND CONNECTIONS
Lines: ``sent VALUE``, ``acked VALUE PARTITION OFFSET DURABILITY``; the last line of a connection is
``open VALUE`` when the break came while its request was unanswered.
"""

from __future__ import annotations

import http.client
import json
import os
import sys
import threading

RECORDS_PER_REQUEST = 5
PADDING = "x" * 200


def produce(port: int, topic: str, log: int, name: str, acks: str) -> None:
    """One connection: request after request until it breaks."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    number = 0
    while True:
        values = [f"{name}-{number}-{index}" for index in range(RECORDS_PER_REQUEST)]
        body = json.dumps({"records": [{"value": value + PADDING} for value in values]})
        os.write(log, f"sent {values[0]}\n".encode())
        try:
            connection.request(
                "POST",
                f"/topics/{topic}?acks={acks}",
                body,
                {"Content-Type": "application/vnd.kafka.text.v2+json"},
            )
            answer = connection.getresponse()
            content = json.loads(answer.read())
        except (OSError, http.client.HTTPException, ValueError):
            os.write(log, f"open {values[0]}\n".encode())
            return
        if answer.status != 200:
            # Stopping or overloaded: nothing was appended, by promise; the check holds us to it.
            os.write(log, f"refused {values[0]} {answer.status}\n".encode())
            return
        lines = [
            f"acked {value} {receipt['partition']} {receipt['offset']} {content['durability']}\n"
            for value, receipt in zip(values, content["offsets"], strict=True)
        ]
        os.write(log, "".join(lines).encode())
        number += 1


def main() -> None:
    """Start the connections, half of them acks=all, half acks=1."""
    port, topic, path, round_number, connections = sys.argv[1:6]
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    threads = [
        threading.Thread(
            target=produce,
            args=(int(port), topic, log, f"{round_number}-{c}", "all" if c % 2 else "1"),
        )
        for c in range(int(connections))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
