"""docs/errors.md from the register of error numbers."""

from __future__ import annotations

from kafkalog.server.protocol.errors import ERROR_TABLE


def errors_page() -> str:
    """The whole page as Markdown."""
    lines = [
        "# Errors",
        "",
        "Every error, also those of the HTTP framework, has this JSON body; `details`,",
        "`validation_errors` and `record_errors` appear when there is something to name.",
        "",
        "```json",
        '{"error_code": 40401, "message": "Topic not found.", "kafka_error":'
        ' "UNKNOWN_TOPIC_OR_PARTITION", "retriable": false, "request_id": "..."}',
        "```",
        "",
        "To an append, 429, 503 and 507 mean that nothing was appended: what a failed write left",
        "was cut off again, and only a power cut right after it could bring that back. 500/50003",
        "means that the records were written and could then not be made durable: they may be kept",
        "or lost, and nobody reads them before a later sync or a restart. Look at the offsets in",
        "`details` before you send them again, or send with a producer id or `expected_offset`:",
        "then repeating is safe. A delete-records answered by 500/50003 has moved the log start",
        "for readers, and a crash may bring the records back: repeat it.",
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
