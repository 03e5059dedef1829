// A stranger's view of a receipt: the file that GET /v1/tx/{txid}/proof gives, checked with Go's own transparency-log code
// (sumdb/note, sumdb/tlog: the tree of RFC 9162) and nothing of the wallet's or the ledger's. Arguments: the ledger's public
// key, then any number of such files.
package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"../stranger"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

type file struct {
	Tenant, Request string
	Receipt         struct {
		Txid, Idem, Root string
		Seq              int64
		TreeSize         int64 `json:"tree_size"`
	}
	LedgerProof struct {
		Leaf       string
		LeafIndex  int64  `json:"leaf_index"`
		LeafHash   string `json:"leaf_hash"`
		TreeSize   int64  `json:"tree_size"`
		Root       string
		Proof      []string
		Checkpoint string
	} `json:"ledger_proof"`
}

func check(name string, key note.Verifier) {
	text, err := os.ReadFile(name)
	if err != nil {
		stranger.Die("%v", err)
	}
	var f file
	if err := json.Unmarshal(text, &f); err != nil {
		stranger.Die("%s: %v", name, err)
	}
	p, r := f.LedgerProof, f.Receipt
	leaf := tlog.RecordHash([]byte(p.Leaf))
	if leaf != stranger.Hash(p.LeafHash) {
		stranger.Die("%s: the leaf does not hash to leaf_hash", name)
	}
	if !strings.Contains(p.Leaf, `"`+r.Txid+`"`) {
		stranger.Die("%s: the leaf is of another transfer", name)
	}
	if p.LeafIndex != r.Seq-1 || p.TreeSize != r.TreeSize || p.Root != r.Root {
		stranger.Die("%s: the proof is for another place than the receipt's", name)
	}
	path, root := stranger.Hashes(p.Proof), stranger.Hash(p.Root)
	if err := tlog.CheckRecord(path, p.TreeSize, root, p.LeafIndex, leaf); err != nil {
		stranger.Die("%s: %v", name, err)
	}
	if p.LeafIndex > 0 && tlog.CheckRecord(path, p.TreeSize, root, p.LeafIndex-1, leaf) == nil {
		stranger.Die("%s: the proof holds for another place, too", name)
	}
	if tree := stranger.Signed([]byte(p.Checkpoint), key); tree.N != p.TreeSize || tree.Hash != root {
		stranger.Die("%s: the signed tree is another (%d)", name, tree.N)
	}
	// The name follows from tenant, key and request: nobody can give a receipt another meaning.
	sum := sha256.Sum256([]byte("ron/wallet/txid/v1\x00" + f.Tenant + "\x00" + r.Idem + "\x00" + f.Request))
	if r.Txid != "tx_"+hex.EncodeToString(sum[:16]) {
		stranger.Die("%s: the txid is not that of its request", name)
	}
}

func main() {
	text, err := os.ReadFile(os.Args[1])
	if err != nil {
		stranger.Die("%v", err)
	}
	key := stranger.Key(string(text))
	for _, name := range os.Args[2:] {
		check(name, key)
	}
	fmt.Printf("Go's note and tlog agree: %d receipts\n", len(os.Args)-2)
}
