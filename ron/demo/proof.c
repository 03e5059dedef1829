/*
 * The receipt of the transfer, proven as a stranger would: the entry's bytes are hashed, the path is walked to a root, that
 * root is the one on the receipt and the one the ledger published, and the checkpoint that carries it is signed with the
 * ledger's key. Then one digit is changed and the same arithmetic must refuse.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/sha256.h"
#include "base/str.h"
#include "ron/demo/demo.h"
#include "services/ledger/core/merkle.h"
#include "services/ledger/core/note.h"

struct evidence {
    struct bytes leaf;
    uint64_t index, size;
    struct sha256 path[MERKLE_PATH_MAX], root;
    size_t path_n;
};

static bool read_evidence(const json_t *proof, struct evidence *out)
{
    const char *leaf = client_str(proof, "leaf");
    size_t i;
    json_t *hash;
    out->leaf = bytes_of(leaf, strlen(leaf));
    out->index = (uint64_t)client_int(proof, "leaf_index");
    out->size = (uint64_t)client_int(proof, "tree_size");
    out->path_n = json_array_size(json_object_get(proof, "proof"));
    if (!out->leaf.n || out->path_n > MERKLE_PATH_MAX ||
        sha256_parse(str_from_c(client_str(proof, "root")), &out->root) != ERR_OK)
        return false;
    json_array_foreach(json_object_get(proof, "proof"), i, hash)
    {
        if (sha256_parse(str_from_c(json_string_value(hash) ? json_string_value(hash) : ""),
                         &out->path[i]) != ERR_OK)
            return false;
    }
    return true;
}

static bool included(const struct evidence *e, struct bytes leaf)
{
    struct sha256 hash;
    ledger_merkle_leaf(leaf, &hash);
    return ledger_merkle_verify_inclusion(&hash, e->index, e->size, e->path, e->path_n, &e->root) == ERR_OK;
}

static bool forged_is_refused(const struct evidence *e)
{
    char *copy = malloc(e->leaf.n + 1);
    if (!copy)
        return false;
    memcpy(copy, e->leaf.p, e->leaf.n);
    copy[e->leaf.n] = 0;
    char *amount = strstr(copy, "\"250\"");
    bool refused = false;
    if (amount) {
        amount[1] = '9';
        refused = !included(e, bytes_of(copy, e->leaf.n));
    }
    free(copy);
    return refused;
}

RT_BLOCKS
static bool published(struct demo *d, const struct evidence *e, const char *root)
{
    struct client_answer a;
    char path[96];
    snprintf(path, sizeof path, "/v1/roots?since=%llu&limit=1", (unsigned long long)e->size - 1);
    if (!demo_call(d, "ledger", 200, &(struct client_request){.path = path, .no_token = true}, &a))
        return false;
    const json_t *row = json_array_get(json_object_get(a.json, "roots"), 0);
    bool ok = demo_claim(
        d, client_int(row, "seq") == (long long)e->size && strcmp(client_str(row, "root"), root) == 0,
        "the ledger published that root: %.27s...", root);
    client_free(&a);
    return ok;
}

RT_BLOCKS
static bool signed_by_ledger(struct demo *d, const struct evidence *e, const char *checkpoint)
{
    struct client_answer a;
    struct ledger_note note;
    if (!demo_call(d, "ledger", 200, &(struct client_request){.path = "/v1/key", .no_token = true}, &a))
        return false;
    bool ok =
        ledger_note_open(str_from_c(checkpoint), str_from_c(client_str(a.json, "vkey")), &note) == ERR_OK &&
        note.size == e->size && sha256_eq(&note.root, &e->root);
    ok = demo_claim(d, ok, "and signed it: %.56s", client_str(a.json, "vkey"));
    client_free(&a);
    return ok;
}

void demo_proof(struct demo *d)
{
    struct client_answer a;
    struct evidence e;
    char path[128];
    demo_chapter(d, "Proof");
    if (!demo_claim(d, d->txid[0] != 0, "there is a transfer to prove: %s", d->txid))
        return;
    snprintf(path, sizeof path, "/v1/tx/%s/proof", d->txid);
    if (!demo_call(d, "wallet", 200, &(struct client_request){.path = path}, &a))
        return;
    const json_t *proof = json_object_get(a.json, "ledger_proof");
    const char *root = client_str(proof, "root");
    if (demo_claim(d, read_evidence(proof, &e) && strstr(client_str(proof, "leaf"), d->txid),
                   "the receipt's entry is here, byte for byte") &&
        demo_claim(d, included(&e, e.leaf), "its hash and %zu other%s lead to the root over %llu entries",
                   e.path_n, e.path_n == 1 ? "" : "s", (unsigned long long)e.size) &&
        demo_claim(d, strcmp(root, d->receipt_root) == 0, "which is the root on the receipt") &&
        published(d, &e, root) && signed_by_ledger(d, &e, client_str(proof, "checkpoint")))
        demo_claim(d, forged_is_refused(&e), "with one digit of the amount changed the proof fails");
    client_free(&a);
}
