/* Who may ask for what, what a refusal says, and that a refused request leaves nothing behind. */
#include "held.h"

/* ---- asking ---- */

static int ask(struct fixture *f, const char *method, const char *path, const char *body,
               const char *token) RT_BLOCKS
{
    struct answer a;
    call(f, method, path, body, NULL, token, &a);
    buf_fini(&a.body);
    return a.status;
}

/* Until the status comes, and with it the `details` of its problem. */
static json_t *problem(struct fixture *f, const char *method, const char *path, const char *body,
                       int status, const char *code) RT_BLOCKS
{
    struct answer a;
    call(f, method, path, body, NULL, NULL, &a);
    if (a.status != status)
        fail_msg("%s %s: %d %s", method, path, a.status, buf_cstr(&a.body));
    json_t *o = json_of(&a);
    assert_string_equal(text(o, "code"), code);
    return o;
}

static const char *detail(const json_t *problem, const char *name)
{
    return text(json_object_get(problem, "details"), name);
}

static void compute_body(char out[256], const char *cid, const char *policy)
{
    snprintf(out, 256, "{\"inputs_cid\":\"%s\",\"policy_id\":\"%s\"}", cid, policy);
}

/* ---- capabilities ---- */

/* A token is looked at before what it asks for: a stranger learns nothing from how a bad request is refused. */
static void without_a_capability_every_route_is_401_whatever_it_is_asked(void **state) RT_BLOCKS
{
    struct fixture *f = *state;
    static const char *const asked[][2] = {
        {"PUT", "/rewarder/inputs"},
        {"GET", "/rewarder/inputs/nonsense"},
        {"GET", "/rewarder/epochs?limit=none"},
        {"GET", "/rewarder/epochs/%2e%2e"},
        {"POST", "/rewarder/epochs/%2e%2e/compute"},
        {"POST", "/rewarder/epochs/e1/emit"},
        {"GET", "/rewarder/epochs/e1/payouts"},
        {"GET", "/rewarder/epochs/e1/payouts.csv"},
        {"GET", "/rewarder/epochs/e1/artifacts/passwd"},
        {"POST", "/rewarder/epochs/e1/quarantine"},
        {"POST", "/rewarder/epochs/e1/release"},
        {"POST", "/rewarder/shadow"},
        {"GET", "/rewarder/shadow/0"},
        {"GET", "/rewarder/shadow/0/diff.csv"},
        {"GET", "/rewarder/policies"},
        {"GET", "/rewarder/policies/none"},
    };
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        int status = ask(f, asked[i][0], asked[i][1], strcmp(asked[i][0], "GET") ? "no json" : NULL, "x");
        if (status != 401)
            fail_msg("%s %s: %d", asked[i][0], asked[i][1], status);
    }
    assert_int_equal(ask(f, "GET", "/rewarder/keys", NULL, "x"), 200); /* public keys are public */
}

/* `account in` is the funding account for who computes and emits, and one's own for who was paid. */
static void a_capability_reaches_its_accounts_assets_and_amounts_only(void **state) RT_BLOCKS
{
    struct fixture *f = *state;
    char cid[80], body[256], ours[8192], theirs[8192], small[8192], alice[8192];
    settle(f, "e1", 10, "weekly");
    put_inputs(f, "e2", 10, cid);
    compute_body(body, cid, "weekly");
    mint(f, (const char *const[]){"op in compute,read", "account in pool:rewards", "asset in ron", NULL},
         ours);
    mint(f, (const char *const[]){"op in compute,read", "account in pool:others", NULL}, theirs);
    mint(f, (const char *const[]){"op in compute", "max_amount <= 999", NULL}, small);
    mint(f, (const char *const[]){"op in payout,read", "account in acct:00001", "ip in 127.0.0.0/8", NULL},
         alice);
    assert_int_equal(ask(f, "POST", "/rewarder/epochs/e2/compute", body, theirs), 403);
    assert_int_equal(ask(f, "POST", "/rewarder/epochs/e2/compute", body, small), 403);
    assert_int_equal(ask(f, "POST", "/rewarder/epochs/e1/emit", "{\"recheck\":true}", theirs), 403);
    assert_int_equal(ask(f, "POST", "/rewarder/epochs/e1/emit", "{}", small), 403);
    assert_int_equal(ask(f, "POST", "/rewarder/epochs/e1/emit", "{}", ours), 200);
    /* nobody knows yet how much "balance" is: no limit covers it */
    char all[256];
    compute_body(all, cid, "all");
    assert_int_equal(ask(f, "POST", "/rewarder/epochs/e2/compute", all, small), 403);
    assert_int_equal(ask(f, "GET", "/rewarder/epochs/e2", NULL, NULL), 404);
    assert_int_equal(ask(f, "POST", "/rewarder/epochs/e2/compute", body, ours), 202);
    json_decref(await_state(f, "e2", "settled"));
    /* after a restart the run still knows whose money it is */
    assert_int_equal(stop(f), 0);
    start(f);
    assert_int_equal(ask(f, "POST", "/rewarder/epochs/e2/emit", "{}", theirs), 403);
    assert_int_equal(ask(f, "POST", "/rewarder/epochs/e2/emit", "{}", ours), 200);
    /* a recipient sees the own payout and what everybody may see, not what holds all the others */
    assert_int_equal(ask(f, "GET", "/rewarder/epochs/e1/payouts?account=acct:00001", NULL, alice), 200);
    assert_int_equal(ask(f, "GET", "/rewarder/epochs/e1/payouts?account=acct:00002", NULL, alice), 403);
    assert_int_equal(ask(f, "GET", "/rewarder/epochs/e1/artifacts/run.json", NULL, alice), 200);
    assert_int_equal(ask(f, "GET", "/rewarder/epochs/e1/artifacts/payouts.bin", NULL, alice), 403);
    assert_int_equal(ask(f, "GET", "/rewarder/epochs/e1/payouts.csv", NULL, alice), 403);
    char path[128];
    snprintf(path, sizeof path, "/rewarder/inputs/%s", cid);
    assert_int_equal(ask(f, "GET", path, NULL, alice), 403);
}

static void shadow_body(char out[1024], const char *cid, const char *against, const char *funding,
                        const char *pool)
{
    snprintf(
        out, 1024,
        "{\"inputs_cid\":\"%s\",\"against\":\"%s\",\"policy\":{\"v\":1,\"id\":\"cand\",\"asset\":\"ron\","
        "\"funding_account\":\"%s\",\"dust_account\":\"pool:dust\",\"pool\":\"%s\",\"rounding\":\"floor\","
        "\"weights\":[{\"dim\":\"points\",\"num\":1,\"den\":1}]}}",
        cid, against, funding, pool);
}

/* A candidate policy is the caller's own text: it may not be a way to see what others have or pay. */
static void r12_a_shadow_run_shows_nobodys_balance_and_no_foreign_policy(void **state) RT_BLOCKS
{
    struct fixture *f = *state;
    char cid[80], body[1024], other[8192];
    struct buf b;
    struct answer a;
    mint(f, (const char *const[]){"op in compute,inputs,read", "tenant = other", NULL}, other);
    snapshot("other", "e1", 5, &b);
    call(f, "PUT", "/rewarder/inputs", buf_cstr(&b), "application/x-ndjson", other, &a);
    assert_int_equal(a.status, 201);
    json_t *o = json_of(&a);
    snprintf(cid, sizeof cid, "%s", text(o, "cid"));
    json_decref(o);
    buf_fini(&b);
    compute_body(body, cid, "weekly");
    assert_int_equal(ask(f, "POST", "/rewarder/epochs/e1/compute", body, other), 403);
    shadow_body(body, cid, "weekly", "pool:mine", "10");
    assert_int_equal(ask(f, "POST", "/rewarder/shadow", body, other), 403); /* default's policy */
    /* the tenant that has policies may ask for the balance behind them, and behind no other account */
    put_inputs(f, "e1", 5, cid);
    shadow_body(body, cid, "weekly", "pool:of-somebody", "balance");
    json_decref(problem(f, "POST", "/rewarder/shadow", body, 403, "policy_forbidden"));
    shadow_body(body, cid, "weekly", "pool:rewards", "balance");
    assert_int_equal(ask(f, "POST", "/rewarder/shadow", body, NULL), 202);
}

static void
a_candidate_that_pays_in_an_asset_the_policy_file_does_not_know_is_refused(void **state) RT_BLOCKS
{
    struct fixture *f = *state;
    char cid[80], body[1024];
    put_inputs(f, "e1", 5, cid);
    shadow_body(body, cid, "weekly", "pool:rewards", "10");
    char *asset = strstr(body, "\"ron\"");
    assert_non_null(asset);
    memcpy(asset, "\"gem\"", 5);
    json_t *o = problem(f, "POST", "/rewarder/shadow", body, 422, "bad_policy");
    assert_string_equal(text(json_object_get(o, "details"), "member"), "asset");
    json_decref(o);
}

/* ---- what a refusal says ---- */

static void a_refusal_says_what_was_expected_and_what_came(void **state) RT_BLOCKS
{
    struct fixture *f = *state;
    char cid[80], body[256];
    struct buf b;
    struct answer a;
    /* bytes that are not the announced ones, among other digests */
    snapshot("default", "e1", 3, &b);
    call_with(f, "PUT", "/rewarder/inputs",
              "Content-Digest: sha-512=:AAAA:, sha-256=:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=:",
              buf_bytes(&b), &a);
    assert_int_equal(a.status, 422);
    json_t *o = json_of(&a);
    assert_string_equal(text(o, "code"), "digest_mismatch");
    assert_string_equal(detail(o, "expected"),
                        "sha256:0000000000000000000000000000000000000000000000000000000000000000");
    assert_int_equal(strlen(detail(o, "actual")), 71);
    json_decref(o);
    buf_fini(&b);
    /* a run without a result */
    settle(f, "e0", 3, "weekly");
    put_inputs(f, "e1", 3, cid);
    hold_workers(f, "e0");
    compute_body(body, cid, "weekly");
    assert_int_equal(ask(f, "POST", "/rewarder/epochs/e1/compute", body, NULL), 202);
    static const char *const early[] = {"/rewarder/epochs/e1/payouts?account=acct:00001",
                                        "/rewarder/epochs/e1/payouts.csv"};
    for (size_t i = 0; i < 2; i++) {
        o = problem(f, "GET", early[i], NULL, 409, "not_sealed");
        assert_string_equal(detail(o, "state"), "queued");
        assert_true(json_is_true(json_object_get(o, "retryable")));
        json_decref(o);
    }
    o = problem(f, "POST", "/rewarder/epochs/e1/emit", "{}", 409, "not_sealed");
    assert_string_equal(detail(o, "state"), "queued");
    json_decref(o);
    release_workers();
    json_decref(await_state(f, "e1", "settled"));
    json_decref(
        problem(f, "POST", "/rewarder/epochs/e1/quarantine", "{\"reason\":\"late\"}", 409, "conflict"));
    /* a conflict names what has the epoch */
    o = compute(f, "e1", cid, "floored", 409);
    assert_string_equal(detail(o, "state"), "settled");
    assert_int_equal(strlen(detail(o, "run_key")), 71);
    assert_int_equal(strlen(detail(o, "inputs_digest")), 71);
    assert_int_equal(strlen(detail(o, "policy_hash")), 71);
    json_decref(o);
}

static void more_rows_than_memory_are_refused_with_how_many_would_fit(void **state) RT_BLOCKS
{
    struct fixture *f = *state;
    char cid[80], body[256];
    json_t *o;
    assert_int_equal(stop(f), 0);
    f->flags[f->flag_n++] = "limits.compute_memory=64MiB";
    start(f);
    put_inputs(f, "e1", 104858, cid); /* 32 MiB are for rows, 320 bytes each */
    compute_body(body, cid, "weekly");
    o = problem(f, "POST", "/rewarder/epochs/e1/compute", body, 413, "too_many_rows");
    assert_int_equal(json_integer_value(json_object_get(json_object_get(o, "details"), "max")), 104857);
    json_decref(o);
    json_decref(get(f, "/rewarder/epochs/e1", 404));
}

/* ---- what has not changed ---- */

static void who_has_seen_it_is_told_that_nothing_changed(void **state) RT_BLOCKS
{
    struct fixture *f = *state;
    char cid[80], path[128], header[160];
    struct answer a;
    settle(f, "e1", 10, "weekly");
    put_inputs(f, "e1", 10, cid);
    snprintf(path, sizeof path, "/rewarder/inputs/%s", cid);
    settle(f, "e2", 11, "weekly");
    const char *const paths[] = {"/rewarder/epochs/e1", "/rewarder/epochs/e1/artifacts/run.json",
                                 "/rewarder/epochs/e1/artifacts/payouts.bin",
                                 "/rewarder/epochs/e1/artifacts/tree.bin", path};
    const char *const others[] = {"/rewarder/epochs/e2", "/rewarder/epochs/e2/artifacts/run.json",
                                  "/rewarder/epochs/e2/artifacts/payouts.bin",
                                  "/rewarder/epochs/e2/artifacts/tree.bin"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        char tag[sizeof a.etag];
        call(f, "GET", i < 4 ? others[i] : paths[2], NULL, NULL, NULL, &a);
        assert_int_equal(a.status, 200);
        strcpy(tag, a.etag);
        buf_fini(&a.body);
        call(f, "GET", paths[i], NULL, NULL, NULL, &a);
        assert_int_equal(a.status, 200);
        assert_int_equal(strlen(a.etag), SHA256_TEXT_CHARS + 1); /* quoted */
        assert_string_not_equal(a.etag, tag);                    /* other bytes, another tag */
        struct sha256 digest;
        char want[SHA256_TEXT_CHARS];
        sha256_of(a.body.p, a.body.n, &digest);
        sha256_format(&digest, want);
        assert_memory_equal(a.etag + 1, want, strlen(want)); /* the one that sha256sum prints */
        strcpy(tag, a.etag);
        buf_fini(&a.body);
        snprintf(header, sizeof header, "If-None-Match: \"other\", %s", tag);
        call_with(f, "GET", paths[i], header, (struct bytes){NULL, 0}, &a);
        assert_int_equal(a.status, 304);
        assert_int_equal(a.body.n, 0);
        assert_string_equal(a.etag, tag);
        buf_fini(&a.body);
        call_with(f, "GET", paths[i], "If-None-Match: \"other\"", (struct bytes){NULL, 0}, &a);
        assert_int_equal(a.status, 200);
        buf_fini(&a.body);
    }
}

static void a_list_by_state_is_filled_with_that_state(void **state) RT_BLOCKS
{
    struct fixture *f = *state;
    char cid[80], body[256];
    fake_ledger_set_down(f->ledger, true);
    put_inputs(f, "held", 3, cid);
    compute_body(body, cid, "weekly");
    assert_int_equal(ask(f, "POST", "/rewarder/epochs/held/compute", body, NULL), 202);
    json_decref(await_state(f, "held", "held"));
    assert_int_equal(
        ask(f, "POST", "/rewarder/epochs/held/quarantine", "{\"reason\":\"to be found\"}", NULL), 200);
    fake_ledger_set_down(f->ledger, false);
    settle(f, "e1", 3, "weekly");
    settle(f, "e2", 3, "weekly");
    json_t *o = get(f, "/rewarder/epochs?state=quarantined&limit=1", 200);
    const json_t *list = json_object_get(o, "epochs");
    assert_int_equal(json_array_size(list), 1); /* though the newest runs are in another state */
    assert_string_equal(text(json_array_get(list, 0), "epoch"), "held");
    json_decref(o);
    o = get(f, "/rewarder/epochs?state=settled&limit=1", 200);
    assert_string_equal(text(json_array_get(json_object_get(o, "epochs"), 0), "epoch"), "e2");
    char path[96];
    snprintf(path, sizeof path, "/rewarder/epochs?state=settled&limit=1&before=%lld",
             (long long)json_integer_value(json_object_get(o, "next")));
    json_decref(o);
    o = get(f, path, 200);
    assert_string_equal(text(json_array_get(json_object_get(o, "epochs"), 0), "epoch"), "e1");
    json_decref(o);
    json_decref(get(f, "/rewarder/epochs?state=nonsense", 400));
}

/* ---- refused requests leave nothing behind ---- */

/* `work` is full of jobs nobody takes. */
static void fill_work(struct fixture *f)
{
    struct rewarder *r = state_of(f);
    struct rewarder_item *it = dud();
    while (rt_chan_try_send(r->work, it) == ERR_OK)
        it = dud();
    rewarder_item_destroy(r, it);
}

static void a_refused_upload_shadow_run_and_quarantine_leave_nothing_behind(void **state) RT_BLOCKS
{
    struct fixture *f = *state;
    struct rewarder *r = state_of(f);
    char cid[80], body[1024], path[128];
    struct buf b;
    struct answer a;
    settle(f, "e0", 3, "weekly");
    fake_ledger_set_down(f->ledger, true);
    put_inputs(f, "e1", 3, cid);
    json_decref(compute(f, "e1", cid, "weekly", 202));
    json_decref(await_state(f, "e1", "held"));
    hold_workers(f, "e0");
    fill_work(f);
    snapshot("default", "e2", 100, &b);
    call(f, "PUT", "/rewarder/inputs", buf_cstr(&b), "application/x-ndjson", NULL, &a);
    assert_int_equal(a.status, 503);
    buf_fini(&a.body);
    buf_fini(&b);
    shadow_body(body, cid, "weekly", "pool:rewards", "10");
    json_t *o = post(f, "/rewarder/shadow", body, 202); /* known; it fails when nobody can compute it */
    snprintf(path, sizeof path, "/rewarder/shadow/%s", text(o, "shadow_id"));
    json_decref(o);
    assert_int_equal(ask(f, "POST", "/rewarder/epochs/e1/quarantine", "{\"reason\":\"x\"}", NULL), 503);
    /* the quarantine came after the other two: all are over */
    assert_int_equal(atomic_load(&r->spool_used), 0);
    o = get(f, path, 200);
    assert_string_equal(text(o, "state"), "failed");
    assert_string_equal(text(json_object_get(o, "failure"), "code"), "unavailable");
    json_decref(o);
    release_workers();
    fake_ledger_set_down(f->ledger, false);
    json_decref(await_state(f, "e1", "settled")); /* nothing holds it back */
    /* and a shadow run that failed may be asked for again */
    o = post(f, "/rewarder/shadow", body, 202);
    struct deadline by = deadline_in_ms(PATIENCE_MS);
    while (strcmp(text(o, "state"), "done") && !deadline_passed(by)) {
        json_decref(o);
        o = get(f, path, 200);
    }
    assert_string_equal(text(o, "state"), "done");
    json_decref(o);
}

/* ---- what the ledger refused, what a disk damaged ---- */

static void every_refused_unit_is_listed_also_after_a_restart(void **state) RT_BLOCKS
{
    struct fixture *f = *state;
    char cid[80];
    f->ledger->frozen = "acct:00007";
    put_inputs(f, "e1", 900, cid); /* two units, the first holds the frozen one */
    json_decref(compute(f, "e1", cid, "weekly", 202));
    json_decref(await_state(f, "e1", "quarantined"));
    for (unsigned life = 0; life < 2; life++) {
        json_t *o = await_state(f, "e1", "quarantined");
        assert_string_equal(text(json_object_get(o, "quarantine"), "kind"), "settlement");
        const json_t *list = json_object_get(json_object_get(o, "settlement"), "refused");
        assert_int_equal(json_array_size(list), 1);
        assert_int_equal(json_integer_value(json_object_get(json_array_get(list, 0), "chunk")), 0);
        assert_true(*text(json_array_get(list, 0), "reason"));
        json_decref(o);
        o = problem(f, "GET", "/rewarder/epochs/e1/payouts?account=acct:00001", NULL, 409, "quarantined");
        assert_string_equal(detail(o, "kind"), "settlement");
        assert_true(*detail(o, "since"));
        json_decref(o);
        assert_int_equal(stop(f), 0);
        start(f);
    }
    f->ledger->frozen = NULL;
    json_decref(problem(f, "POST", "/rewarder/epochs/e1/release", "{\"action\":\"discard\"}", 409,
                        "partially_settled"));
    json_t *o = post(f, "/rewarder/epochs/e1/release", "{\"action\":\"resume\"}", 202);
    json_decref(o);
    o = await_state(f, "e1", "settled");
    assert_int_equal(json_array_size(json_object_get(json_object_get(o, "settlement"), "refused")), 0);
    json_decref(o);
}

/* One bit of the byte after `what`; NULL: of the 41st. */
static void flip(struct fixture *f, const char *epoch, const char *name, const char *what)
{
    char path[256], all[65536];
    long at = 40;
    snprintf(path, sizeof path, "%s/rewarder/runs/default/%s/%s", f->root, epoch, name);
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    size_t n = fread(all, 1, sizeof all, file);
    if (what) {
        const char *found = memmem(all, n, what, strlen(what));
        assert_non_null(found);
        at = found + strlen(what) - all;
    }
    assert_true((size_t)at < n);
    assert_int_equal(fseek(file, at, SEEK_SET), 0);
    fputc(all[at] ^ 1, file);
    assert_int_equal(fclose(file), 0);
}

/* A settled run that was damaged says which file; one that is not settled is stopped before anything leaves. */
static void a_damaged_file_is_named_counted_and_never_paid_from(void **state) RT_BLOCKS
{
    struct fixture *f = *state;
    char cid[80];
    static const char *const names[] = {"payouts.bin", "run.json", "seal.json"};
    static const char *const at[] = {NULL, "\"score\":\"",
                                     "sealed_at\":"}; /* a figure that nothing else repeats */
    char epoch[8] = "s0";
    for (unsigned i = 0; i < 3; i++) {
        epoch[1] = (char)('0' + i);
        settle(f, epoch, 5, "weekly");
    }
    settle(f, "tree", 600, "weekly");
    fake_ledger_set_down(f->ledger, true);
    put_inputs(f, "open", 5, cid);
    json_decref(compute(f, "open", cid, "weekly", 202));
    json_decref(await_state(f, "open", "held"));
    assert_int_equal(stop(f), 0);
    for (unsigned i = 0; i < 3; i++) {
        epoch[1] = (char)('0' + i);
        flip(f, epoch, names[i], at[i]);
    }
    flip(f, "open", "payouts.bin", NULL);
    flip(f, "tree", "tree.bin", NULL);
    fake_ledger_set_down(f->ledger, false);
    uint64_t paid = paid_in(f->ledger);
    start(f);
    for (unsigned i = 0; i < 3; i++) {
        char path[80];
        snprintf(path, sizeof path, "/rewarder/epochs/s%u/payouts?account=acct:00001", i);
        json_t *o = problem(f, "GET", path, NULL, 500, "artifact_corrupt");
        assert_string_equal(detail(o, "file"), names[i]);
        json_decref(o);
        assert_true(counted(f, REWARDER_M_corrupt, names[i]) > 0);
    }
    struct deadline by = deadline_in_ms(PATIENCE_MS); /* who looks before the emitter has is told, too */
    while (ask(f, "GET", "/rewarder/epochs/open", NULL, NULL) == 500 && !deadline_passed(by))
        ;
    json_t *o = await_state(f, "open", "quarantined");
    assert_string_equal(text(json_object_get(o, "quarantine"), "kind"), "artifact");
    json_decref(o);
    assert_int_equal(paid_in(f->ledger), paid);
    /* tree.bin is only a cache: the proof is right without it */
    o = get(f, "/rewarder/epochs/tree/payouts?account=acct:00008", 200);
    assert_non_null(json_object_get(o, "proof"));
    json_decref(o);
    assert_int_equal(counted(f, REWARDER_M_corrupt, "tree.bin"), 1);
}

/* ---- promises ---- */

/* What an unsettled run will pay is not there for another one, after a restart either; a quarantined one may be resumed. */
static void a_balance_that_others_were_promised_is_not_paid_out_again(void **state) RT_BLOCKS
{
    struct fixture *f = *state;
    char cid[80];
    assert_int_equal(stop(f), 0);
    f->flags[f->flag_n++] = "settlement.hold=true";
    start(f);
    for (unsigned i = 0; i < 2; i++) { /* 1000 each */
        char epoch[8];
        snprintf(epoch, sizeof epoch, "e%u", i);
        put_inputs(f, epoch, 5, cid);
        json_decref(compute(f, epoch, cid, "weekly", 202));
        json_decref(await_state(f, epoch, "held"));
    }
    assert_int_equal(ask(f, "POST", "/rewarder/epochs/e0/quarantine", "{\"reason\":\"look\"}", NULL), 200);
    assert_int_equal(stop(f), 0);
    start(f);
    put_inputs(f, "rest", 5, cid);
    json_decref(compute(f, "rest", cid, "all", 202));
    json_t *o = await_state(f, "rest", "held");
    assert_string_equal(text(json_object_get(json_object_get(o, "manifest"), "pool"), "amount"), "998000");
    json_decref(o);
    put_inputs(f, "none", 5, cid);
    json_decref(compute(f, "none", cid, "all", 202));
    o = await_state(f, "none", "held");
    assert_string_equal(text(json_object_get(json_object_get(o, "manifest"), "pool"), "amount"), "0");
    json_decref(o);
}

/* What another account has is not what there is to pay. */
static void an_answer_about_another_account_is_no_pool(void **state) RT_BLOCKS
{
    struct fixture *f = *state;
    char cid[80];
    f->ledger->others = 100;
    put_inputs(f, "e1", 5, cid);
    json_decref(compute(f, "e1", cid, "all", 202));
    json_t *o = await_state(f, "e1", "failed");
    assert_string_equal(text(json_object_get(o, "failure"), "code"), "ledger_unavailable");
    json_decref(o);
    f->ledger->others = 0;
    json_decref(compute(f, "e1", cid, "all", 202));
    json_decref(await_state(f, "e1", "settled"));
    assert_true(f->ledger->available.units == 0);
}

/* The pool a dry run of everything would have. */
static void expect_pool(struct fixture *f, const char *epoch, const char *want) RT_BLOCKS
{
    char cid[80], path[80], body[256];
    put_inputs(f, epoch, 5, cid);
    snprintf(path, sizeof path, "/rewarder/epochs/%s/compute", epoch);
    snprintf(body, sizeof body, "{\"inputs_cid\":\"%s\",\"policy_id\":\"all\",\"dry_run\":true}", cid);
    json_decref(post(f, path, body, 202));
    struct deadline by = deadline_in_ms(PATIENCE_MS);
    snprintf(path, sizeof path, "/rewarder/epochs/%s?dry_run=true", epoch);
    for (;;) {
        json_t *o = get(f, path, 200);
        const json_t *pool = json_object_get(json_object_get(o, "manifest"), "pool");
        if (pool)
            assert_string_equal(text(pool, "amount"), want);
        bool over = pool || deadline_passed(by);
        assert_true(pool || !over);
        json_decref(o);
        if (over)
            return;
    }
}

/* Of a run that is paid in part only the rest is promised: what was paid has left the balance already. */
static void a_half_settled_run_is_owed_the_other_half(void **state) RT_BLOCKS
{
    struct fixture *f = *state;
    char cid[80];
    f->ledger->frozen = "acct:00007";
    put_inputs(f, "e1", 900, cid); /* two units, the first holds the frozen one */
    json_decref(compute(f, "e1", cid, "weekly", 202));
    json_decref(await_state(f, "e1", "quarantined"));
    assert_in_range(paid_in(f->ledger), 1, 699);
    assert_true(f->ledger->available.units < 1000000);
    expect_pool(f, "d1", "999000");
    assert_int_equal(stop(f), 0);
    start(f);
    expect_pool(f, "d2", "999000");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(without_a_capability_every_route_is_401_whatever_it_is_asked),
        TEST(a_capability_reaches_its_accounts_assets_and_amounts_only),
        TEST(a_candidate_that_pays_in_an_asset_the_policy_file_does_not_know_is_refused),
        TEST(r12_a_shadow_run_shows_nobodys_balance_and_no_foreign_policy),
        TEST(a_refusal_says_what_was_expected_and_what_came),
        TEST(more_rows_than_memory_are_refused_with_how_many_would_fit),
        TEST(who_has_seen_it_is_told_that_nothing_changed),
        TEST(a_list_by_state_is_filled_with_that_state),
        TEST(a_refused_upload_shadow_run_and_quarantine_leave_nothing_behind),
        TEST(every_refused_unit_is_listed_also_after_a_restart),
        TEST(a_damaged_file_is_named_counted_and_never_paid_from),
        TEST(a_balance_that_others_were_promised_is_not_paid_out_again),
        TEST(an_answer_about_another_account_is_no_pool),
        TEST(a_half_settled_run_is_owed_the_other_half),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
