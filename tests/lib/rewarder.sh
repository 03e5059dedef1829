# Shared by the rewarder's scripts: starts the service on a free port in a directory of its own, and asserts.
# shellcheck shell=bash
# shellcheck source=tests/lib/script.sh
. "$SRC/tests/lib/script.sh"
stop_rewarder() { stop_program "$@"; }

write_policy() { # ROUNDING POOL [MORE MEMBERS]
    cat >"$DIR/policy.json" <<X
{"reward_policies":[{"v":1,"id":"weekly","asset":"ron","funding_account":"pool:rewards","dust_account":"pool:dust",
"pool":"$2","rounding":"$1","weights":[{"dim":"bytes_served","num":1,"den":4},{"dim":"bytes_stored","num":1,"den":1},
{"dim":"uptime_seconds","num":1,"den":1}]${3:-}}]}
X
}

start_rewarder() { # [--key=value ...]
    BASE=${BASE:-$("$SRC/tests/lib/ports")}
    URL=http://127.0.0.1:$((BASE + 40))
    launch rewarder --data "$DIR/data" --base-port "$BASE" --policy.file="$DIR/policy.json" --policy_id=weekly "$@"
    await_http "$URL/readyz"
    TOKEN=$(cat "$DIR/data/operator.token")
}

rewarder() { "$RON" rewarder "$@" --data "$DIR/data" --base-port "$BASE"; }

await_state() { # EPOCH STATE...
    local epoch=$1 now i
    shift
    for ((i = 0; i < 1200; i++)); do
        now=$(curl -s -H "Authorization: Bearer $TOKEN" "$URL/rewarder/epochs/$epoch" | jq -r .state)
        for want in "$@"; do [ "$now" = "$want" ] && return; done
        pause 0.05
    done
    die "$epoch is $now, not $*"
}

await_log() { # TEXT that the log will have
    local i
    for ((i = 0; i < 1200; i++)); do
        grep -q "$1" "$DIR/log" && return
        pause 0.05
    done
    die "the log does not say $1"
}

usage_csv() { # ROWS SEED: accounts in no order
    awk -v n="$1" -v seed="$2" 'BEGIN { srand(seed); print "account,bytes_stored,bytes_served,uptime_seconds"
        for (i = 0; i < n; i++) printf "acct:u%05d,%d,%d,%d\n", (i * 7919 + 13) % n, rand() * 1e9, rand() * 1e6, rand() * 604800 }'
}

# ---- with a ledger in a process of its own ----

LEDGER_PID=
launch_ledger() { # [--key=value ...]
    BASE=${BASE:-$("$SRC/tests/lib/ports")}
    LEDGER=http://127.0.0.1:$((BASE + 10))
    "$RON" ledger --data "$DIR/data" --base-port "$BASE" "$@" >>"$DIR/ledger.log" 2>&1 &
    LEDGER_PID=$!
}

await_ledger() {
    local i
    for ((i = 0; i < 1200; i++)); do
        [ "$(curl -s -o /dev/null -w '%{http_code}' "$LEDGER/readyz" || true)" = 200 ] && return
        kill -0 "$LEDGER_PID" 2>/dev/null || { tail -5 "$DIR/ledger.log"; die "the ledger ended"; }
        pause 0.05
    done
    die "the ledger is not ready"
}

stop_ledger() { # SIGNAL
    [ -n "$LEDGER_PID" ] || return 0
    kill "-${1:-TERM}" "$LEDGER_PID" 2>/dev/null || true
    wait "$LEDGER_PID" 2>/dev/null || true
    LEDGER_PID=
}
trap 'stop_rewarder KILL; stop_ledger KILL; rm -rf "$DIR"' EXIT

ledger_get() { curl -sf -H "Authorization: Bearer $(cat "$DIR/data/operator.token")" "$LEDGER$1"; }

mint_pool() { # AMOUNT
    curl -sf -H "Authorization: Bearer $(cat "$DIR/data/operator.token")" -d "{\"units\":[{\"idem_id\":\"test:mint\",\"entries\":[{\"id\":\"test-mint\",\"ts\":1760000000000,\"kind\":\"mint\",\"account\":\"pool:rewards\",\"asset\":\"ron\",\"amount\":\"$1\"}]}]}" "$LEDGER/v1/ingest" >/dev/null || die "cannot mint"
}

available() { # ACCOUNT
    ledger_get "/v1/accounts/$1" | jq -r '[.balances[] | select(.asset == "ron").available][0] // "0"'
}

# Every leaf of the run has exactly one ledger entry: same id, payee and amount, at the seq the service says; and the ledger has no other.
check_bijection() { # EPOCH
    curl -sf -H "Authorization: Bearer $TOKEN" "$URL/rewarder/epochs/$1/payouts.csv" >"$DIR/payouts.csv" || die "no CSV"
    awk -F, 'NR > 1 && $9 != "" { print $10 "," $9 "," $1 "," $2 }' "$DIR/payouts.csv" | sort >"$DIR/want"
    local from=1
    : >"$DIR/entries"
    while :; do
        ledger_get "/v1/entries?from=$from&limit=1000" >"$DIR/page"
        jq -r '.entries[] | select(.entry.kind == "transfer" and (.entry.id | startswith("rw_"))) | "\(.seq),\(.entry.id),\(.entry.to),\(.entry.amount)"' "$DIR/page" >>"$DIR/entries"
        from=$(jq -r '.next // 0' "$DIR/page")
        [ "$from" != 0 ] || break
    done
    sort "$DIR/entries" | cmp - "$DIR/want" || { diff <(sort "$DIR/entries") "$DIR/want" | head -5; die "leaves and ledger entries differ"; }
}
