#!/bin/sh
# Starts a broker of its own on a spare port, fills a compacted topic, waits for the cleaner, reads it anew.
set -eu
PORT=${PORT:-19092}
DATA=$(mktemp -d)
export BARNABAS_BOOTSTRAP=127.0.0.1:$PORT

: >"$DATA.out"
barnabas start --data "$DATA" --listen "127.0.0.1:$PORT" -o log.cleaner.backoff.ms=6000 >"$DATA.out" 2>"$DATA.log" &
BROKER=$!
trap 'kill $BROKER; wait $BROKER; rm -rf "$DATA" "$DATA.out" "$DATA.log"' EXIT
until grep -q ^ready "$DATA.out"; do kill -0 $BROKER; sleep 0.1; done

send() { printf '%s\n' "$@" | barnabas produce inventory -k ' ' 2>/dev/null; }

barnabas topic create inventory -c cleanup.policy=compact -c segment.ms=500 -c min.cleanable.dirty.ratio=0.01
send '123 {"NB":"3"}' '456 {"PAD":"9"}' '789 {"TV":"2"}'
sleep 0.6
send '123 {"NB":"8"}' '456 {"PAD":"5"}' '789 {"TV":"13"}'
sleep 0.6
send '123 {"NB":"7"}' '456 {"PAD":"4"}'

echo 'before cleaning:'
barnabas consume inventory -o beginning -e -f '%o  %k %s\n' 2>/dev/null
until [ "$(barnabas consume inventory -o beginning -e -f '%o\n' 2>/dev/null | wc -l)" -eq 5 ]; do kill -0 $BROKER; sleep 0.2; done
echo 'after cleaning, a new consumer reads:'
barnabas consume inventory -o beginning -e -f '%o  %k %s\n' 2>/dev/null
