#!/bin/sh
# Load for the dashboards: a topic with retention, a compacted one, and one that waits for an archive.
# Runs until it is ended. KAFKALOG_URL is the address of the daemon, KAFKALOG the command.
set -eu
kafkalog=${KAFKALOG:-kafkalog}
segment_ms=${DEMO_SEGMENT_MS:-60000}

$kafkalog topics create demo.clicks --if-not-exists --partitions 3 \
  --config "segment.ms=$segment_ms" --config "retention.ms=$((segment_ms * 5))" --config file.delete.delay.ms=10000
$kafkalog topics create demo.accounts --if-not-exists --partitions 2 --config cleanup.policy=compact \
  --config "segment.ms=$segment_ms" --config min.cleanable.dirty.ratio=0.2
$kafkalog topics create demo.orders --if-not-exists --config "segment.ms=$segment_ms" --config archive.hold=true

run=0
while :; do
  run=$((run + 1))
  for partition in 0 1 2; do
    awk -v run="$run" 'BEGIN { for (i = 0; i < 200; i++) printf "{\"page\":\"/%d\",\"run\":%d}\n", i * run % 97, run }' |
      $kafkalog produce demo.clicks --partition "$partition"
  done
  # new balances of 50 of a thousand accounts, and a null value, which deletes the key of one
  awk -v run="$run" 'BEGIN { for (i = 0; i < 50; i++) printf "account-%d:%d\n", (run * 37 + i) % 1000, run * 100 + i }' |
    $kafkalog produce demo.accounts --key-separator :
  printf '{"key":"account-%d","value":null}\n' $((run % 1000)) |
    $kafkalog produce demo.accounts --format jsonl
  # an archive that is one run behind
  awk -v run="$run" 'BEGIN { for (i = 0; i < 20; i++) printf "{\"order\":%d}\n", run * 20 + i }' |
    $kafkalog produce demo.orders
  $kafkalog retention archived demo.orders --partition 0 --raise-to $(((run - 1) * 20)) --yes >/dev/null
  $kafkalog consume demo.clicks --offset -100 --exit-at-end >/dev/null
  # a group that catches up in every third run
  [ $((run % 3)) -ne 1 ] || $kafkalog groups reset-offsets demo.readers --topic demo.clicks --to-latest --yes >/dev/null
  sleep 1
done
