/*
 * ron wallet verify: is this receipt true? Offline, from one file and the ledger's public key:
 *
 *   1  receipt_hash is the hash of the receipt's members before it
 *   2  txid comes out of tenant, key and request
 *   3  the request says what the receipt says
 *   4  the leaf holds that transaction, and its unit is the hash of the envelope
 *   5  the envelope's idem_id and meta hold tenant, key, memo and payee, its fingerprint all that the unit moved
 *   6  the path leads from the leaf to the receipt's root
 *   7  the ledger signed that root
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base64.h"
#include "base/time_fmt.h"
#include "ron/client.h"
#include "ron/cmd_wallet.h"
#include "services/ledger/core/merkle.h"
#include "services/ledger/core/note.h"
#include "services/wallet/core/meta.h"
#include "services/wallet/core/op.h"

struct proof {
    const json_t *file, *receipt, *ledger;
    json_t *request, *leaf, *envelope; /* owned */
};

static bool same(const json_t *a, const char *a_name, const json_t *b, const char *b_name)
{
    const json_t *x = json_object_get(a, a_name), *y = json_object_get(b, b_name);
    return x && y && json_equal(x, y);
}

/* Present in both and equal, or in neither. */
static bool agrees(const json_t *a, const json_t *b, const char *name)
{
    return (!json_object_get(a, name) && !json_object_get(b, name)) || same(a, name, b, name);
}

static bool hash_is(const char *text, const void *p, size_t n)
{
    struct sha256 want, got;
    sha256_of(p, n, &got);
    return sha256_parse(str_from_c(text), &want) == ERR_OK && sha256_eq(&want, &got);
}

static bool check_receipt_hash(const struct proof *p)
{
    static const char *const after[] = {"receipt_hash", "seq", "root", "tree_size"};
    json_t *before = json_deep_copy(p->receipt);
    for (size_t i = 0; i < sizeof after / sizeof after[0]; i++)
        json_object_del(before, after[i]);
    char *text = json_dumps(before, JSON_COMPACT | JSON_SORT_KEYS);
    bool ok = text && hash_is(client_str(p->receipt, "receipt_hash"), text, strlen(text));
    free(text);
    json_decref(before);
    return ok;
}

static bool check_txid(const struct proof *p)
{
    char txid[WALLET_TXID_CHARS];
    wallet_txid(str_from_c(client_str(p->file, "tenant")), str_from_c(client_str(p->receipt, "idem")),
                str_from_c(client_str(p->file, "request")), txid);
    return strcmp(txid, client_str(p->receipt, "txid")) == 0;
}

static bool check_request(const struct proof *p)
{
    static const char *const always[] = {"op", "memo", "hold", "nonce", "lane"};
    bool settles = json_object_get(p->request, "hold") != NULL;
    for (size_t i = 0; i < sizeof always / sizeof always[0]; i++)
        if (!agrees(p->request, p->receipt, always[i]))
            return false;
    if (json_object_get(p->request, "amount") && !same(p->request, "amount", p->receipt, "amount"))
        return false;
    return settles || (agrees(p->request, p->receipt, "from") && agrees(p->request, p->receipt, "to") &&
                       agrees(p->request, p->receipt, "asset"));
}

static const char *kind_of(const char *op)
{
    return strcmp(op, "issue") == 0 ? "mint" : op;
}

/* Who paid whom. A hold's payee stands in meta until it is captured (check_envelope). */
static bool check_sides(const struct proof *p, const char *op)
{
    return strcmp(op, "issue") == 0 ? same(p->leaf, "account", p->receipt, "to")
                                    : same(p->leaf, "account", p->receipt, "from") &&
                                          (strcmp(op, "hold") == 0 || agrees(p->leaf, p->receipt, "to"));
}

static bool check_expiry(const struct proof *p)
{
    const json_t *until = json_object_get(p->leaf, "hold_until");
    const char *text = client_str(p->receipt, "expires_at");
    int64_t ms;
    return until ? time_parse_ms(str_from_c(text), &ms) == ERR_OK && json_integer_value(until) == ms
                 : !*text;
}

/* The fingerprint covers every entry of the unit. What a capture gave back stands in its second one, which has no leaf here. */
static bool check_fingerprint(const struct proof *p)
{
    static const char *const not_in_it[] = {"id", "ts", "unit", "v"};
    json_t *first = json_deep_copy(p->leaf), *released = json_object_get(p->receipt, "released");
    for (size_t i = 0; i < sizeof not_in_it / sizeof not_in_it[0]; i++)
        json_object_del(first, not_in_it[i]);
    json_t *rest = released ? json_deep_copy(first) : NULL;
    json_object_del(rest, "to");
    json_object_set_new(rest, "kind", json_string("release"));
    json_object_set(rest, "amount", released);
    json_t *unit =
        json_pack("{s:[o,o*],s:s}", "entries", first, rest, "idem_id", client_str(p->envelope, "idem_id"));
    char *text = json_dumps(unit, JSON_COMPACT | JSON_SORT_KEYS);
    bool ok = text && hash_is(client_str(p->envelope, "fp"), text, strlen(text));
    free(text);
    json_decref(unit);
    return ok;
}

static bool check_leaf(const struct proof *p)
{
    const char *op = client_str(p->receipt, "op"), *envelope = client_str(p->ledger, "envelope");
    int64_t ts_ms;
    unsigned long long nonce = (unsigned long long)client_int(p->receipt, "lane") << 48 |
                               (unsigned long long)client_int(p->receipt, "nonce");
    char nonce_text[24];
    snprintf(nonce_text, sizeof nonce_text, "%llu", nonce);
    return same(p->leaf, "id", p->receipt, "txid") &&
           strcmp(client_str(p->leaf, "kind"), kind_of(op)) == 0 &&
           time_parse_ms(str_from_c(client_str(p->receipt, "ts")), &ts_ms) == ERR_OK &&
           client_int(p->leaf, "ts") == ts_ms && check_sides(p, op) && check_expiry(p) &&
           same(p->leaf, "asset", p->receipt, "asset") && same(p->leaf, "amount", p->receipt, "amount") &&
           (nonce == 0 || strcmp(client_str(p->leaf, "nonce"), nonce_text) == 0) &&
           (!json_object_get(p->leaf, "ref_id") || same(p->leaf, "ref_id", p->receipt, "hold")) &&
           hash_is(client_str(p->leaf, "unit"), envelope, strlen(envelope));
}

static bool check_envelope(const struct proof *p)
{
    uint8_t raw[WALLET_META_MAX + 8];
    size_t n;
    struct wallet_meta m;
    char idem[WALLET_IDEM_ID_CHARS];
    struct str tenant = str_from_c(client_str(p->file, "tenant")),
               key = str_from_c(client_str(p->receipt, "idem"));
    const char *text = client_str(p->envelope, "meta");
    bool hold = strcmp(client_str(p->receipt, "op"), "hold") == 0;
    wallet_idem_id(tenant, key, idem);
    if (strcmp(client_str(p->envelope, "idem_id"), idem) != 0 ||
        strlen(text) > base64_encoded_chars(WALLET_META_MAX) ||
        base64_decode(str_from_c(text), raw, sizeof raw, &n) != ERR_OK ||
        wallet_meta_decode(bytes_of(raw, n), &m) != ERR_OK)
        return false;
    return check_fingerprint(p) && str_eq(m.tenant, tenant) && str_eq(m.key, key) &&
           str_eq_c(m.memo, client_str(p->receipt, "memo")) &&
           str_eq_c(m.payee, hold ? client_str(p->receipt, "to") : "");
}

static bool check_path(const struct proof *p)
{
    struct sha256 path[MERKLE_PATH_MAX], leaf, root;
    const char *text = client_str(p->ledger, "leaf");
    size_t n = 0, i;
    json_t *item;
    json_array_foreach(json_object_get(p->ledger, "proof"), i, item)
    {
        if (n == MERKLE_PATH_MAX || !json_is_string(item) ||
            sha256_parse(str_from_c(json_string_value(item)), &path[n]) != ERR_OK)
            return false;
        n++;
    }
    ledger_merkle_leaf(bytes_of(text, strlen(text)), &leaf);
    return sha256_parse(str_from_c(client_str(p->receipt, "root")), &root) == ERR_OK &&
           same(p->ledger, "root", p->receipt, "root") &&
           same(p->ledger, "tree_size", p->receipt, "tree_size") &&
           client_int(p->ledger, "leaf_index") + 1 == client_int(p->receipt, "seq") &&
           ledger_merkle_verify_inclusion(&leaf, (uint64_t)client_int(p->ledger, "leaf_index"),
                                          (uint64_t)client_int(p->ledger, "tree_size"), path, n,
                                          &root) == ERR_OK;
}

static bool check_signature(const struct proof *p, const char *vkey)
{
    struct ledger_note note;
    struct sha256 root;
    return ledger_note_open(str_from_c(client_str(p->ledger, "checkpoint")), str_from_c(vkey), &note) ==
               ERR_OK &&
           sha256_parse(str_from_c(client_str(p->receipt, "root")), &root) == ERR_OK &&
           sha256_eq(&root, &note.root) && note.size == (uint64_t)client_int(p->receipt, "tree_size");
}

/* A vkey, or the first line of a file. */
static bool read_vkey(const char *given, char out[512])
{
    FILE *f = fopen(given, "r");
    snprintf(out, 512, "%s", given);
    if (!f)
        return strchr(given, '+') != NULL;
    bool ok = fgets(out, 512, f) != NULL;
    fclose(f);
    out[strcspn(out, "\r\n")] = 0;
    return ok;
}

int wallet_verify_run(struct cmd_ctx *ctx, int argc, char **argv)
{
    char vkey[512];
    const char *given = cmd_flag(ctx, "key", NULL);
    json_error_t why;
    (void)argc;
    if (given && !read_vkey(given, vkey))
        return cmd_fail(ctx, CMD_USAGE,
                        "--key %s is neither a key (origin+id+key) nor a file that holds one", given);
    if (!given)
        return cmd_fail(ctx, CMD_USAGE,
                        "whose signature is to be checked? --key VKEY, or a file that holds it (GET "
                        "/v1/key of the ledger)");
    json_t *file = strcmp(argv[0], "-") == 0 ? json_loadf(stdin, JSON_REJECT_DUPLICATES, &why)
                                             : json_load_file(argv[0], JSON_REJECT_DUPLICATES, &why);
    if (!file)
        return cmd_fail(ctx, CMD_FAILED, "%s is not a proof: %s", argv[0], why.text);
    struct proof p = {.file = file,
                      .receipt = json_object_get(file, "receipt"),
                      .ledger = json_object_get(file, "ledger_proof")};
    p.request = json_loads(client_str(file, "request"), JSON_REJECT_DUPLICATES, NULL);
    p.leaf = json_loads(client_str(p.ledger, "leaf"), JSON_REJECT_DUPLICATES, NULL);
    p.envelope = json_loads(client_str(p.ledger, "envelope"), JSON_REJECT_DUPLICATES, NULL);
    const struct {
        const char *what;
        bool ok;
    } checks[] = {
        {"receipt_hash covers the receipt", check_receipt_hash(&p)},
        {"txid names tenant, key and request", check_txid(&p)},
        {"the request says what the receipt says", check_request(&p)},
        {"the leaf holds this transaction", check_leaf(&p)},
        {"the envelope holds tenant, key and memo", check_envelope(&p)},
        {"the path leads to the root", check_path(&p)},
        {"the ledger signed the root", check_signature(&p, vkey)},
    };
    bool all = true;
    for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++) {
        all = all && checks[i].ok;
        if (!cmd_global(ctx)->json)
            printf("%-4s %s\n", checks[i].ok ? "ok" : "NO", checks[i].what);
    }
    if (cmd_global(ctx)->json)
        printf("{\"ok\":%s}\n", all ? "true" : "false");
    json_decref(p.request);
    json_decref(p.leaf);
    json_decref(p.envelope);
    json_decref(file);
    return all ? CMD_OK : CMD_FAILED;
}
