# Shared by scripts that need everything: `ron up` on free ports in a directory of its own.
# shellcheck shell=bash
set -euo pipefail

DIR=$(mktemp -d)
PID=
trap 'stop_system KILL; rm -rf "$DIR"' EXIT

die() {
    echo "FAILED: $*" >&2
    [ -f "$DIR/log" ] && tail -20 "$DIR/log" >&2
    exit 1
}

is() { # WHAT WANT GOT
    [ "$2" = "$3" ] || die "$1: expected '$2', got '$3'"
}

pause() { read -rt "$1" <> <(:) || true; } # between two looks at something that is under way

start_system() { # [flags]: DATA, BASE and TOKEN are set when every service is ready
    [ -n "${BASE:-}" ] || BASE=$("$SRC/tests/lib/ports")
    DATA=${DATA:-$DIR/data}
    "$RON" up --data "$DATA" --base-port "$BASE" "$@" >>"$DIR/log" 2>&1 &
    PID=$!
    local i
    for ((i = 0; i < 400; i++)); do
        if "$RON" status --base-port "$BASE" --data "$DATA" >"$DIR/status" 2>&1; then
            TOKEN=$(cat "$DATA/operator.token" 2>/dev/null || true)
            return
        fi
        kill -0 "$PID" 2>/dev/null || die "ron up ended"
        pause 0.05
    done
    die "not ready: $(cat "$DIR/status")"
}

stop_system() { # SIGNAL; the exit code is in $STATUS
    [ -n "$PID" ] || return 0
    kill "-${1:-TERM}" "$PID" 2>/dev/null || true
    wait "$PID" 2>/dev/null && STATUS=0 || STATUS=$?
    PID=
}

port_of() { # SERVICE
    case $1 in
    console) echo "$BASE" ;; ledger) echo $((BASE + 10)) ;; wallet) echo $((BASE + 20)) ;;
    mailbox) echo $((BASE + 30)) ;; rewarder) echo $((BASE + 40)) ;; edge) echo $((BASE + 50)) ;;
    *) die "no service $1" ;;
    esac
}
