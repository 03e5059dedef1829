# Shared by the ledger's scripts: starts one service on free ports in a directory of its own, and asserts.
# shellcheck shell=bash
set -euo pipefail

DIR=$(mktemp -d)
PID=
trap 'stop_ledger KILL; rm -rf "$DIR"' EXIT

die() {
    echo "FAILED: $*" >&2
    [ -f "$DIR/log" ] && tail -20 "$DIR/log" >&2
    exit 1
}

pause() { read -rt "$1" <> <(:) || true; } # between two looks at something that is under way

launch_ledger() { # [--key=value ...]: without waiting
    BASE=${BASE:-$("$SRC/tests/lib/ports")}
    URL=http://127.0.0.1:$((BASE + 10))
    "$RON" ledger --data "$DIR/data" --base-port "$BASE" "$@" >>"$DIR/log" 2>&1 &
    PID=$!
}

start_ledger() { # [--key=value ...]
    launch_ledger "$@"
    local i
    for ((i = 0; i < 400; i++)); do
        if [ "$(curl -s -o /dev/null -w '%{http_code}' "$URL/${READY:-readyz}" || true)" = 200 ]; then
            [ -f "$DIR/data/operator.token" ] && TOKEN=$(cat "$DIR/data/operator.token")
            return
        fi
        kill -0 "$PID" 2>/dev/null || die "the service ended"
        pause 0.05
    done
    die "the service is not ready"
}

stop_ledger() { # SIGNAL; the exit code is in $STATUS
    [ -n "$PID" ] || return 0
    kill "-${1:-TERM}" "$PID" 2>/dev/null || true
    wait "$PID" 2>/dev/null && STATUS=0 || STATUS=$?
    PID=
}

api() { # METHOD PATH [BODY] -> body on stdout, status by code()
    curl -s -o "$DIR/answer" -w '%{http_code}' -X "$1" -H "Authorization: Bearer ${AS:-$TOKEN}" ${3+-d "$3"} "$URL$2" >"$DIR/code"
    cat "$DIR/answer"
}

code() { cat "$DIR/code"; }

expect() { # STATUS METHOD PATH [BODY]: asserts the status, prints the body
    local want=$1
    shift
    api "$@"
    [ "$(code)" = "$want" ] || die "$1 $2 answered $(code) instead of $want: $(cat "$DIR/answer")"
}

is() { # WHAT WANT GOT
    [ "$2" = "$3" ] || die "$1: expected '$2', got '$3'"
}

field() { jq -r "$1" <"$DIR/answer"; } # of the last answer

ts() { echo $((1760000000000 + ${1:-0})); }

mint() { # N ACCOUNT AMOUNT -> a unit
    printf '{"idem_id":"t:m:%s","entries":[{"id":"m%s","ts":%s,"kind":"mint","account":"%s","asset":"ron","amount":"%s"}]}' "$1" "$1" "$(ts)" "$2" "$3"
}

pay() { # N FROM TO AMOUNT NONCE -> a unit
    printf '{"idem_id":"t:p:%s","entries":[{"id":"p%s","ts":%s,"kind":"transfer","account":"%s","to":"%s","asset":"ron","amount":"%s","nonce":"%s"}]}' "$1" "$1" "$(ts)" "$2" "$3" "$4" "$5"
}

ingest() { # STATUS UNIT... [?query in $QUERY]
    local want=$1
    shift
    local IFS=,
    expect "$want" POST "/v1/ingest${QUERY:-}" "{\"units\":[$*]}" >/dev/null
}

balance() { # ACCOUNT
    api GET "/v1/accounts/$1" >/dev/null
    field '.balances[0].available // "0"'
}
