"""Produces three records and reads them again, with the client that comes with kafkalog."""

import json
import os
from contextlib import suppress

from kafkalog.client import Client, ProducerRecord, TopicExists

DRINKS = [("alice", "tea", 1), ("bob", "coffee", 2), ("alice", "water", 3)]

with Client(os.environ.get("KAFKALOG_URL", "http://127.0.0.1:8082")) as client:
    records = [
        ProducerRecord(json.dumps({"drink": drink, "cups": cups}), key=name)
        for name, drink, cups in DRINKS
    ]
    with suppress(TopicExists):
        client.create_topic("examples")
    # Without partition= the key decides, as in Kafka.
    (receipt,) = client.produce("examples", records, partition=0)
    print(f"appended from offset {receipt.base_offset} on, {receipt.durability}")

    # is_endless=False ends at the end of the log; otherwise the loop waits for further records.
    tail = client.tail("examples", 0, start=receipt.base_offset, is_endless=False)
    for record in tail:
        key, value = (record.key or b"").decode(), json.loads(record.value or b"null")
        print(f"{record.partition}/{record.offset} {key}: {value}")
