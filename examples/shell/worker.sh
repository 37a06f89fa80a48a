#!/bin/sh
# A worker in a few lines of shell: counts the words of its payload.
#
#   ekiden work --pool words --kind count --exec "$PWD/examples/shell/worker.sh"
#   ekiden task add count '{"text":"to be or not to be"}' --pool words
#
# The payload is on stdin, the result goes to a file, progress goes through a pipe, and everything that is printed is the log.
set -eu

say() {
    printf '%s\n' "$1" > "$EKIDEN_EVENTS"
}

payload=$(cat)
echo "attempt $EKIDEN_ATTEMPT of task $EKIDEN_TASK_ID"
say '{"type":"progress","done":1,"total":2,"note":"counting"}'

# 65 says: this will never work, do not try again.
case $payload in
    *'"text"'*) ;;
    *) echo 'no "text" in the payload' >&2; exit 65 ;;
esac

words=$(printf '%s' "$payload" | sed 's/.*"text" *: *"\([^"]*\)".*/\1/' | wc -w)
printf '{"words":%d}' "$words" > "$EKIDEN_RESULT"
say '{"type":"progress","done":2,"total":2}'
