# Shared by the edge's scripts: starts one service on a free port in a directory of its own, and asserts.
# shellcheck shell=bash
# shellcheck source=tests/lib/script.sh
. "$SRC/tests/lib/script.sh"
ORIGIN_PID=
stop_edge() { stop_program "$@"; }
trap 'stop_edge KILL; stop_origin; rm -rf "$DIR"' EXIT

start_edge() { # [--key=value ...]
    BASE=${BASE:-$("$SRC/tests/lib/ports")}
    URL=${SCHEME:-http}://127.0.0.1:$((BASE + 50))
    launch edge --data "$DIR" --base-port "$BASE" --ingress.rps_limit=1000000 --ingress.client_rps=1000000 --ingress.client_inflight=512 "$@"
    await_http "$URL/healthz"
    TOKEN=$(cat "$DIR/operator.token" 2>/dev/null || true)
}

stop_origin() {
    [ -n "$ORIGIN_PID" ] || return 0
    kill "$ORIGIN_PID" 2>/dev/null || true
    wait "$ORIGIN_PID" 2>/dev/null || true
    ORIGIN_PID=
}

certificate() { # SUBJECT_ALT_NAME: $DIR/ca.pem, which vouches for itself, and its key $DIR/origin.key
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=origin -keyout "$DIR/origin.key" \
        -out "$DIR/ca.pem" -addext "subjectAltName=$1" >/dev/null 2>&1
}

start_origin() { # an HTTPS origin with its own CA; ORIGIN is its URL, $DIR/ca.pem its certificate
    certificate IP:127.0.0.1
    python3 "$SRC/tests/lib/edge_origin.py" "$DIR/ca.pem" "$DIR/origin.key" "$DIR/origin.port" >"$DIR/origin.log" 2>&1 &
    ORIGIN_PID=$!
    local i
    for ((i = 0; i < 600; i++)); do
        if [ -s "$DIR/origin.port" ]; then
            ORIGIN=https://127.0.0.1:$(cat "$DIR/origin.port")
            return
        fi
        pause 0.05
    done
    die "the origin does not start"
}

open_gate() { curl -s --cacert "$DIR/ca.pem" "$ORIGIN/open/$1" >/dev/null; } # what /gate/NAME waits for

asked() { curl -s --cacert "$DIR/ca.pem" "$ORIGIN/count$1"; } # how many GETs the origin saw for a path

# req STATUS PATH [curl options]: asserts the status; headers in $DIR/head, body in $DIR/body
req() {
    local want=$1 path=$2 got
    shift 2
    got=$(curl -s --path-as-is -o "$DIR/body" -D "$DIR/head" -w '%{http_code}' "$@" "$URL$path") || true
    [ "$got" = "$want" ] || die "$path $*: expected $want, got $got: $(head -c 300 "$DIR/body")"
}

header() { tr -d '\r' <"$DIR/head" | sed -n "s/^$1: //Ip" | head -1; }

is() { [ "$2" = "$3" ] || die "$1: expected '$3', got '$2'"; }

admin() { # STATUS METHOD PATH [BODY]
    local got
    got=$(curl -s -o "$DIR/body" -w '%{http_code}' -X "$2" -H "Authorization: Bearer $TOKEN" ${4+-d "$4"} "$URL$3")
    [ "$got" = "$1" ] || die "$2 $3: expected $1, got $got: $(head -c 300 "$DIR/body")"
}

metric() { curl -s "$URL/metrics" | grep -v '^#' | grep -F "$1" | awk '{s += $NF} END {print s + 0}'; }

fills() { curl -s -H "Authorization: Bearer $TOKEN" "$URL/admin/fills" | grep -o "\"state\":\"$1\"" | wc -l; } # how many are in that state

in_state() { # STATE N: waits until at least N fills are in that state
    local i
    for ((i = 0; i < 1500; i++)); do
        [ "$(fills "$1")" -ge "$2" ] && return
        pause 0.02
    done
    die "never $2 fills $1"
}
fetching() { in_state fetching "$1"; }
queued() { in_state queued "$1"; }
