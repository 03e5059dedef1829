// A stranger's view of a receipt: the file that GET /v1/tx/{txid}/proof gives, checked with Go's own transparency-log code
// (sumdb/note, sumdb/tlog: the tree of RFC 9162) and nothing of the wallet's or the ledger's. Arguments: the ledger's public
// key, then any number of such files.
package main

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
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

func hash(s string) (h tlog.Hash) {
	b, err := hex.DecodeString(strings.TrimPrefix(s, "sha256:"))
	if err != nil || len(b) != 32 {
		die("not a hash: %q", s)
	}
	copy(h[:], b)
	return
}

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
		die("%v", err)
	}
	var f file
	if err := json.Unmarshal(text, &f); err != nil {
		die("%s: %v", name, err)
	}
	p, r := f.LedgerProof, f.Receipt
	leaf := tlog.RecordHash([]byte(p.Leaf))
	if leaf != hash(p.LeafHash) {
		die("%s: the leaf does not hash to leaf_hash", name)
	}
	if !strings.Contains(p.Leaf, `"`+r.Txid+`"`) {
		die("%s: the leaf is of another transfer", name)
	}
	if p.LeafIndex != r.Seq-1 || p.TreeSize != r.TreeSize || p.Root != r.Root {
		die("%s: the proof is for another place than the receipt's", name)
	}
	var path []tlog.Hash
	for _, s := range p.Proof {
		path = append(path, hash(s))
	}
	if err := tlog.CheckRecord(path, p.TreeSize, hash(p.Root), p.LeafIndex, leaf); err != nil {
		die("%s: %v", name, err)
	}
	if p.LeafIndex > 0 && tlog.CheckRecord(path, p.TreeSize, hash(p.Root), p.LeafIndex-1, leaf) == nil {
		die("%s: the proof holds for another place, too", name)
	}
	n, err := note.Open([]byte(p.Checkpoint), note.VerifierList(key))
	if err != nil {
		die("%s: checkpoint: %v", name, err)
	}
	lines := strings.Split(n.Text, "\n")
	size, _ := strconv.ParseInt(lines[1], 10, 64)
	root, _ := base64.StdEncoding.DecodeString(lines[2])
	if size != p.TreeSize || hex.EncodeToString(root) != strings.TrimPrefix(p.Root, "sha256:") {
		die("%s: the signed tree is another (%d)", name, size)
	}
	// The name follows from tenant, key and request: nobody can give a receipt another meaning.
	sum := sha256.Sum256([]byte("ron/wallet/txid/v1\x00" + f.Tenant + "\x00" + r.Idem + "\x00" + f.Request))
	if r.Txid != "tx_"+hex.EncodeToString(sum[:16]) {
		die("%s: the txid is not that of its request", name)
	}
}

func main() {
	text, err := os.ReadFile(os.Args[1])
	if err != nil {
		die("%v", err)
	}
	key, err := note.NewVerifier(strings.TrimSpace(string(text)))
	if err != nil {
		die("key: %v", err)
	}
	for _, name := range os.Args[2:] {
		check(name, key)
	}
	fmt.Printf("Go's note and tlog agree: %d receipts\n", len(os.Args)-2)
}
