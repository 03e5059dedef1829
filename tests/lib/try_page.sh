# shellcheck shell=bash
# Runs the blocks of docs/ops/replication.md from "$1" to before "$2" ($3 of them), word for word; only where things are is replaced. What
# they print is in $DIR/out. Sourced, with errors ending the test.
DIR=$(mktemp -d /tmp/ron-docs-XXXXXX)
chmod 711 "$DIR"
export PG_CLUSTER_DIR=$DIR/pg
PG_CLUSTER_PORT=$("$SRC/tests/lib/ports")
export PG_CLUSTER_PORT
die() {
    echo "FAILED: $*" >&2
    exit 1
}
cleanup() {
    # shellcheck disable=SC2046  # numbers, one per line
    [ ! -f "$DIR/pids" ] || kill -KILL $(cat "$DIR/pids") 2>/dev/null || true
    "$SRC/tools/pg-cluster" stop >/dev/null 2>&1 || true
    rm -rf "$DIR"
}
trap cleanup EXIT
python3 - "$SRC/docs/ops/replication.md" "$RON" "$SRC" "$DIR" "$1" "$2" "$3" \
    "$("$SRC/tests/lib/ports")" "$("$SRC/tests/lib/ports")" >"$DIR/try.sh" <<'END'
import re, sys
page, program, src, work, begin, end, count = sys.argv[1:-2]
text = open(page).read()
text = text[text.index(begin):]
text = text[:text.index(end)]
blocks = re.findall(r"```sh\n(.*?)```", text, re.S)
assert len(blocks) == int(count), "the page lost its blocks"
bases = {"74": int(sys.argv[-2]), "75": int(sys.argv[-1])}
script = re.sub(r"\b(74|75)(00|10|30)\b", lambda m: str(bases[m[1]] + int(m[2])), "\n".join(blocks))
script = script.replace("build/release/ron", program).replace("tools/pg-cluster", src + "/tools/pg-cluster")
print(re.sub(r"^((?:A|B|BENCH)=\$!)$", rf"\1; echo $! >>{work}/pids", script, flags=re.M))
END
mkdir "$DIR/work"
cd "$DIR/work" || die "no directory"
timeout 400 bash -euo pipefail "$DIR/try.sh" >"$DIR/out" 2>"$DIR/err" || die "it ends with $?: $(tail -n 5 "$DIR/out") $(tail -n 5 "$DIR/err") $(tail -qn 2 ./*.log)"
says() { grep -q -- "$1" "$DIR/out" || die "it does not show '$1': $(cat "$DIR/out")"; }
