# Shared by the ledger's scripts: starts one service on free ports in a directory of its own, and asserts.
# shellcheck shell=bash
# shellcheck source=tests/lib/script.sh
. "$SRC/tests/lib/script.sh"
stop_ledger() { stop_program "$@"; }
trap 'stop_ledger KILL; rm -rf "$DIR"' EXIT

launch_ledger() { # [--key=value ...]: without waiting
    BASE=${BASE:-$("$SRC/tests/lib/ports")}
    URL=http://127.0.0.1:$((BASE + 10))
    launch ledger --data "$DIR/data" --base-port "$BASE" "$@"
}

start_ledger() { # [--key=value ...]
    launch_ledger "$@"
    await_http "$URL/${READY:-readyz}"
    [ ! -f "$DIR/data/operator.token" ] || TOKEN=$(cat "$DIR/data/operator.token")
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

mint() { # N ACCOUNT AMOUNT -> a unit
    printf '{"idem_id":"t:m:%s","entries":[{"id":"m%s","ts":%s,"kind":"mint","account":"%s","asset":"ron","amount":"%s"}]}' "$1" "$1" 1760000000000 "$2" "$3"
}

pay() { # N FROM TO AMOUNT NONCE -> a unit
    printf '{"idem_id":"t:p:%s","entries":[{"id":"p%s","ts":%s,"kind":"transfer","account":"%s","to":"%s","asset":"ron","amount":"%s","nonce":"%s"}]}' "$1" "$1" 1760000000000 "$2" "$3" "$4" "$5"
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
