# Shared by scripts that look at traces: a collector, and what it has seen. $DIR, die and pause are the including script's.
# shellcheck shell=bash
COLLECTOR_PID=

start_collector() { # OTLP is its address
    local i
    python3 "$SRC/tests/lib/otlp_collector.py" "$DIR/otlp.port" "$DIR/spans" >"$DIR/otlp.log" 2>&1 &
    COLLECTOR_PID=$!
    for ((i = 0; i < 1200; i++)); do
        if [ -s "$DIR/otlp.port" ]; then
            # shellcheck disable=SC2034
            OTLP=http://127.0.0.1:$(cat "$DIR/otlp.port")/v1/traces
            return
        fi
        pause 0.05
    done
    die "the collector does not start"
}

stop_collector() {
    [ -n "$COLLECTOR_PID" ] || return 0
    kill "$COLLECTOR_PID" 2>/dev/null || true
    wait "$COLLECTOR_PID" 2>/dev/null || true
    COLLECTOR_PID=
}

spans() { awk -v n="$1" -v t="$2" '$1 == n && $2 == t' "$DIR/spans"; } # NAME TRACE: their lines

await_span() { # NAME TRACE [COUNT]: LINE is the last of them
    local i
    for ((i = 0; i < 1200; i++)); do
        if [ "$(spans "$1" "$2" | wc -l)" -ge "${3:-1}" ]; then
            # shellcheck disable=SC2034
            LINE=$(spans "$1" "$2" | tail -1)
            return
        fi
        pause 0.05
    done
    cat "$DIR/spans" "$DIR/otlp.log" >&2
    die "no span $1 of trace $2"
}

span_id() { cut -d' ' -f3 <<<"$1"; }
span_parent() { cut -d' ' -f4 <<<"$1"; }
span_attr() { cut -d' ' -f5- <<<"$1" | jq -r --arg k "$2" '.[$k]'; } # LINE KEY
