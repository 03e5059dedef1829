// A stranger's view of the ledger, with Go's own transparency-log code: the checkpoint is opened with sumdb/note, inclusion and
// consistency proofs and the hash tiles are checked with sumdb/tlog. Nothing here comes from the ledger's sources.
package main

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

func die(format string, args ...interface{}) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
	os.Exit(1)
}

func get(url string) []byte {
	r, err := http.Get(url)
	if err != nil {
		die("%s: %v", url, err)
	}
	defer r.Body.Close()
	b, _ := io.ReadAll(r.Body)
	if r.StatusCode != 200 {
		die("%s: %d %s", url, r.StatusCode, b)
	}
	return b
}

func hash(s string) (h tlog.Hash) {
	b, err := hex.DecodeString(strings.TrimPrefix(s, "sha256:"))
	if err != nil || len(b) != 32 {
		die("not a hash: %q", s)
	}
	copy(h[:], b)
	return
}

func hashes(v []string) (out []tlog.Hash) {
	for _, s := range v {
		out = append(out, hash(s))
	}
	return
}

// readHashes reads tiles of height 8 as tlog-tiles serves them.
type tiles struct{ base string }

func (t tiles) Height() int { return 8 }
func (t tiles) ReadTiles(list []tlog.Tile) (out [][]byte, err error) {
	for _, tile := range list {
		p := tile.Path() // tile/8/L/N[.p/W]
		out = append(out, get(t.base+"/tile/"+strings.TrimPrefix(p, "tile/8/")))
	}
	return
}
func (t tiles) SaveTiles([]tlog.Tile, [][]byte) {}

func main() {
	base := os.Args[1]
	var key struct{ Vkey string }
	json.Unmarshal(get(base+"/v1/key"), &key)
	v, err := note.NewVerifier(key.Vkey)
	if err != nil {
		die("vkey: %v", err)
	}
	n, err := note.Open(get(base+"/checkpoint"), note.VerifierList(v))
	if err != nil {
		die("note: %v", err)
	}
	lines := strings.Split(n.Text, "\n")
	size, _ := strconv.ParseInt(lines[1], 10, 64)
	rootBytes, _ := base64.StdEncoding.DecodeString(lines[2])
	var root tlog.Hash
	copy(root[:], rootBytes)
	for i := int64(1); i <= size; i++ {
		var p struct {
			LeafHash string `json:"leaf_hash"`
			Proof    []string
		}
		json.Unmarshal(get(fmt.Sprintf("%s/v1/proof/inclusion?seq=%d&size=%d", base, i, size)), &p)
		if err := tlog.CheckRecord(hashes(p.Proof), size, root, i-1, hash(p.LeafHash)); err != nil {
			die("inclusion of %d: %v", i, err)
		}
		var c struct {
			FromRoot string `json:"from_root"`
			Proof    []string
		}
		json.Unmarshal(get(fmt.Sprintf("%s/v1/proof/consistency?from=%d&to=%d", base, i, size)), &c)
		if err := tlog.CheckTree(hashes(c.Proof), size, root, i, hash(c.FromRoot)); err != nil {
			die("consistency %d to %d: %v", i, size, err)
		}
	}
	// The whole tree again from its tiles: TileHashReader authenticates every tile against the signed root.
	r := tlog.TileHashReader(tlog.Tree{N: size, Hash: root}, tiles{base})
	for i := int64(0); i < size; i += 1 + size/50 {
		if _, err := r.ReadHashes([]int64{tlog.StoredHashIndex(0, i)}); err != nil {
			die("tiles, leaf %d: %v", i, err)
		}
	}
	fmt.Printf("Go's note and tlog agree: %d entries, every proof, every tile\n", size)
}
