// What a stranger needs who checks a ledger's tree: hashes as they are spelled, and a signed checkpoint opened with sumdb/note.
package stranger

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

func Die(format string, args ...interface{}) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
	os.Exit(1)
}

func Hash(s string) (h tlog.Hash) {
	b, err := hex.DecodeString(strings.TrimPrefix(s, "sha256:"))
	if err != nil || len(b) != 32 {
		Die("not a hash: %q", s)
	}
	copy(h[:], b)
	return
}

func Hashes(v []string) (out []tlog.Hash) {
	for _, s := range v {
		out = append(out, Hash(s))
	}
	return
}

func Key(vkey string) note.Verifier {
	key, err := note.NewVerifier(strings.TrimSpace(vkey))
	if err != nil {
		Die("key: %v", err)
	}
	return key
}

// Signed is the tree that the owner of the key has signed.
func Signed(checkpoint []byte, key note.Verifier) (tree tlog.Tree) {
	n, err := note.Open(checkpoint, note.VerifierList(key))
	if err != nil {
		Die("checkpoint: %v", err)
	}
	lines := strings.Split(n.Text, "\n")
	if len(lines) < 3 {
		Die("checkpoint of %d lines", len(lines))
	}
	size, err := strconv.ParseInt(lines[1], 10, 64)
	if err != nil {
		Die("checkpoint: %v", err)
	}
	root, err := base64.StdEncoding.DecodeString(lines[2])
	if err != nil || len(root) != len(tree.Hash) {
		Die("checkpoint: not a root: %q", lines[2])
	}
	tree.N = size
	copy(tree.Hash[:], root)
	return
}
