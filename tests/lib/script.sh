# Shared by every script that runs the program: a directory of its own, one program at a time, and how to fail.
# shellcheck shell=bash
set -euo pipefail

# shellcheck source=tests/lib/workdir.sh
. "$SRC/tests/lib/workdir.sh"
DIR=$(workdir)
chmod 700 "$DIR"
PID=

die() {
    echo "FAILED: $*" >&2
    [ -f "$DIR/log" ] && tail -20 "$DIR/log" >&2
    exit 1
}

# A command that fails where nobody looks ends the script without a word: it is named, and what the program said last is shown.
set -o errtrace
trap 'echo "line $LINENO of ${BASH_SOURCE##*/} fails: $BASH_COMMAND" >&2; [ ! -f "$DIR/log" ] || tail -5 "$DIR/log" >&2' ERR

pause() { read -rt "$1" <> <(:) || true; } # between two looks at something that is under way

launch() { # ARGUMENTS OF ron...: in the background, its log in $DIR/log
    "$RON" "$@" >>"$DIR/log" 2>&1 &
    PID=$!
}

await_http() { # URL that answers 200, or whatever $2 says; the program has to live
    local i
    for ((i = 0; i < 1200; i++)); do
        [ "$(curl -s -m 10 -o /dev/null -w '%{http_code}' "$1" || true)" = "${2:-200}" ] && return
        kill -0 "$PID" 2>/dev/null || die "the program ended"
        pause 0.05
    done
    die "$1 does not answer ${2:-200}"
}

stop_program() { # SIGNAL; the exit code is in $STATUS
    [ -n "$PID" ] || return 0
    kill "-${1:-TERM}" "$PID" 2>/dev/null || [ "${1:-TERM}" = KILL ] || die "the program had ended before it was told to"
    await_end
}

await_end() { # of a program that was told otherwise; the exit code is in $STATUS
    wait "$PID" 2>/dev/null && STATUS=0 || STATUS=$?
    PID=
}
