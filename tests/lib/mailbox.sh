# Shared by the mailbox's scripts: starts one service on free ports in a directory of its own, and asserts.
# shellcheck shell=bash
set -euo pipefail

DIR=$(mktemp -d)
PID=
trap 'stop_mailbox KILL; rm -rf "$DIR"' EXIT

die() {
    echo "FAILED: $*" >&2
    [ -f "$DIR/log" ] && tail -20 "$DIR/log" >&2
    exit 1
}

start_mailbox() { # [--key=value ...]
    BASE=${BASE:-$("$SRC/tests/lib/ports")}
    URL=http://127.0.0.1:$((BASE + 30))
    "$RON" mailbox --data "$DIR/data" --base-port "$BASE" "$@" >>"$DIR/log" 2>&1 &
    PID=$!
    local i
    for ((i = 0; i < 600; i++)); do
        if [ "$(curl -s -o /dev/null -w '%{http_code}' "$URL/readyz" || true)" = 200 ]; then
            TOKEN=$(cat "$DIR/data/operator.token")
            return
        fi
        kill -0 "$PID" 2>/dev/null || die "the service ended"
        pause 0.05
    done
    die "the service is not ready"
}

stop_mailbox() { # SIGNAL
    [ -n "$PID" ] || return 0
    kill "-${1:-TERM}" "$PID" 2>/dev/null || true
    wait "$PID" 2>/dev/null && STATUS=0 || STATUS=$?
    PID=
}

api() { # METHOD PATH [BODY] -> body on stdout, status in $CODE (file: subshells cannot set it)
    curl -s -o "$DIR/answer" -w '%{http_code}' -X "$1" -H "Authorization: Bearer ${AS:-$TOKEN}" ${3+-d "$3"} "$URL$2" >"$DIR/code"
    cat "$DIR/answer"
}

code() { cat "$DIR/code"; }

# expect STATUS METHOD PATH [BODY]: asserts the status, prints the body
expect() {
    local want=$1
    shift
    api "$@" >"$DIR/out"
    [ "$(code)" = "$want" ] || die "$1 $2 ${3:-}: got $(code), wanted $want: $(cat "$DIR/out")"
    cat "$DIR/out"
}

same() { # WHAT GOT WANTED
    [ "$2" = "$3" ] || die "$1: got '$2', wanted '$3'"
}

pause() { # SECONDS without a process
    read -rt "$1" <> <(:) || true
}

send() { # TOPIC KEY TEXT -> msg_id
    expect 200 POST /v1/send "$(jq -nc --arg t "$1" --arg k "$2" --arg p "$3" '{topic:$t,idem_key:$k,payload_b64:($p|@base64)}')" | jq -r .msg_id
}
