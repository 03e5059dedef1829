# Shared by scripts that need everything: `ron up` on free ports in a directory of its own.
# shellcheck shell=bash
# shellcheck source=tests/lib/script.sh
. "$SRC/tests/lib/script.sh"
stop_system() { stop_program "$@"; }
trap 'stop_system KILL; rm -rf "$DIR"' EXIT

is() { # WHAT WANT GOT
    [ "$2" = "$3" ] || die "$1: expected '$2', got '$3'"
}

start_system() { # [flags]: DATA, BASE and TOKEN are set when every service is ready
    [ -n "${BASE:-}" ] || BASE=$("$SRC/tests/lib/ports")
    DATA=${DATA:-$DIR/data}
    launch up --data "$DATA" --base-port "$BASE" "$@"
    local i
    for ((i = 0; i < 600; i++)); do
        if "$RON" status --base-port "$BASE" --data "$DATA" >"$DIR/status" 2>&1; then
            TOKEN=$(cat "$DATA/operator.token" 2>/dev/null || true)
            return
        fi
        kill -0 "$PID" 2>/dev/null || die "ron up ended"
        pause 0.05
    done
    die "not ready: $(cat "$DIR/status")"
}

port_of() { # SERVICE
    case $1 in
    console) echo "$BASE" ;; ledger) echo $((BASE + 10)) ;; wallet) echo $((BASE + 20)) ;;
    mailbox) echo $((BASE + 30)) ;; rewarder) echo $((BASE + 40)) ;; edge) echo $((BASE + 50)) ;;
    *) die "no service $1" ;;
    esac
}
