# Shared by the mailbox's scripts: starts one service on free ports in a directory of its own, and asserts.
# shellcheck shell=bash
# shellcheck source=tests/lib/script.sh
. "$SRC/tests/lib/script.sh"
stop_mailbox() { stop_program "$@"; }
trap 'stop_mailbox KILL; rm -rf "$DIR"' EXIT

start_mailbox() { # [--key=value ...]
    BASE=${BASE:-$("$SRC/tests/lib/ports")}
    URL=http://127.0.0.1:$((BASE + 30))
    launch mailbox --data "$DIR/data" --base-port "$BASE" "$@"
    await_http "$URL/readyz"
    TOKEN=$(cat "$DIR/data/operator.token")
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

send() { # TOPIC KEY TEXT -> msg_id
    expect 200 POST /v1/send "$(jq -nc --arg t "$1" --arg k "$2" --arg p "$3" '{topic:$t,idem_key:$k,payload_b64:($p|@base64)}')" | jq -r .msg_id
}
