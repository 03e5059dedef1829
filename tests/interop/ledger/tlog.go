// A stranger's view of the ledger, with Go's own transparency-log code: the checkpoint is opened with sumdb/note, inclusion and
// consistency proofs and the hash tiles are checked with sumdb/tlog. Nothing here comes from the ledger's sources.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"../stranger"
	"golang.org/x/mod/sumdb/tlog"
)

func get(url string) []byte {
	r, err := http.Get(url)
	if err != nil {
		stranger.Die("%s: %v", url, err)
	}
	defer r.Body.Close()
	b, _ := io.ReadAll(r.Body)
	if r.StatusCode != 200 {
		stranger.Die("%s: %d %s", url, r.StatusCode, b)
	}
	return b
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
	tree := stranger.Signed(get(base+"/checkpoint"), stranger.Key(key.Vkey))
	size, root := tree.N, tree.Hash
	for i := int64(1); i <= size; i++ {
		var p struct {
			LeafHash string `json:"leaf_hash"`
			Proof    []string
		}
		json.Unmarshal(get(fmt.Sprintf("%s/v1/proof/inclusion?seq=%d&size=%d", base, i, size)), &p)
		if err := tlog.CheckRecord(stranger.Hashes(p.Proof), size, root, i-1, stranger.Hash(p.LeafHash)); err != nil {
			stranger.Die("inclusion of %d: %v", i, err)
		}
		var c struct {
			FromRoot string `json:"from_root"`
			Proof    []string
		}
		json.Unmarshal(get(fmt.Sprintf("%s/v1/proof/consistency?from=%d&to=%d", base, i, size)), &c)
		if err := tlog.CheckTree(stranger.Hashes(c.Proof), size, root, i, stranger.Hash(c.FromRoot)); err != nil {
			stranger.Die("consistency %d to %d: %v", i, size, err)
		}
	}
	// The whole tree again from its tiles: TileHashReader authenticates every tile against the signed root.
	r := tlog.TileHashReader(tree, tiles{base})
	for i := int64(0); i < size; i += 1 + size/50 {
		if _, err := r.ReadHashes([]int64{tlog.StoredHashIndex(0, i)}); err != nil {
			stranger.Die("tiles, leaf %d: %v", i, err)
		}
	}
	fmt.Printf("Go's note and tlog agree: %d entries, every proof, every tile\n", size)
}
