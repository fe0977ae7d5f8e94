"""docs/reference/errors.md from the register of error numbers."""

from __future__ import annotations

from kafkalog.server.protocol.errors import ERROR_TABLE


def errors_page() -> str:
    """The whole page as Markdown."""
    lines = [
        "# Errors",
        "",
        "Every error has this JSON body, including errors of the HTTP framework. `details`,",
        "`validation_errors` and `record_errors` are present only with contents. `retriable` says",
        "whether the same request may succeed later.",
        "",
        "```json",
        '{"error_code": 40401, "message": "Topic not found.", "kafka_error":'
        ' "UNKNOWN_TOPIC_OR_PARTITION", "retriable": false, "request_id": "..."}',
        "```",
        "",
        "For an append:",
        "",
        "- 429, 503 and 507 mean that nothing was appended. What a failed write left is cut off;",
        "  only a power failure directly after it could bring it back.",
        "- 500/50003 means that the records were written but could not be made durable. They may",
        "  be retained or lost, and no reader sees them before a later sync or a restart. Check",
        "  the offsets in `details` before you send the records again. With a producer id or",
        "  `expected_offset` you may repeat the request without a check.",
        "",
        "A delete-records that is answered with 500/50003 has moved the log start for readers. A",
        "crash may bring the records back, so repeat the request.",
        "",
        "| error_code | HTTP | kafka_error | retriable | meaning |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {row.error_code} | {row.status} | {row.kafka_error} | "
        f"{'yes' if row.retriable else 'no'} | {row.meaning} |"
        for row in ERROR_TABLE
    ]
    return "\n".join(lines) + "\n"
