#!/bin/sh
# Produces three records and reads them again. Needs curl.
set -eu
url=${KAFKALOG_URL:-http://127.0.0.1:8082}
records=$url/v1/topics/examples/records

# One record a line. The first one creates the topic; the answer comes when all are on the disk.
curl -sS --fail-with-body "$records" -H 'Content-Type: application/x-ndjson' --data-binary @- <<'LINES'
{"key": "alice", "value": {"drink": "tea", "cups": 1}}
{"key": "bob", "value": {"drink": "coffee", "cups": 2}}
{"key": "alice", "value": {"drink": "water", "cups": 3}}
LINES
echo

# The last three records, one a line. With max_wait_ms=10000 curl would wait for further ones.
curl -sS --fail-with-body "$records?tail=3&fields=partition,offset,key,value" \
  -H 'Accept: application/x-ndjson'
