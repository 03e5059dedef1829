/*
 * `ron rewarder fsck` and `ron rewarder rebuild`: on the data directory, while no service holds its lock.
 *
 * fsck reads everything and hashes it: frames of registry.log, files of every run against each other and against the line that
 * registered them, inputs against their content ids. It changes nothing without --repair, which salvages a log with damage in
 * the middle: every good frame stays, sealed runs that lost theirs get a new one, and, because a lost line may have been a
 * quarantine, every run that is not settled is quarantined until somebody releases it.
 *
 * rebuild computes a run again from its stored inputs and installs the files only when manifest digest and root are the
 * registered ones.
 */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hex.h"
#include "ron/cmd_rewarder.h"
#include "ron/progress.h"
#include "services/rewarder/core/manifest.h"
#include "services/rewarder/keys.h"
#include "services/rewarder/rewarder.h"
#include "store/file_replace.h"

enum { DAMAGED = 1, UNREADABLE = 3, LOG_MAX = 1 << 30, PARTITION = 65536 };

struct shop {
    struct cmd_ctx *ctx;
    struct rewarder r;
    char root[REWARDER_ROOT_MAX];
    uint64_t runs, inputs, faults, last_n;
    bool repair;
    struct buf log;      /* what a repaired log will hold */
    const char *visited; /* tenant while its epochs are listed */
    struct progress shown;
};

static void fault(struct shop *s, const char *what, const char *where)
{
    s->faults++;
    progress_clear(&s->shown);
    fprintf(stderr, "%s: %s\n", where, what);
}

/* Who does not want to know that registry.log is lost cannot go on without it. */
static int open_shop(struct shop *s, struct cmd_ctx *ctx, bool *out_lost) RT_BLOCKS
{
    struct store_stat st;
    *s = (struct shop){.ctx = ctx};
    rewarder_keys_init(&s->r.keys);
    int n = snprintf(s->root, sizeof s->root, "%s/rewarder", cmd_global(ctx)->data);
    if (n < 0 || (size_t)n >= sizeof s->root || store_disk_stat(store_disk_real(), s->root, &st) != ERR_OK)
        return cmd_fail(ctx, UNREADABLE, "there is no rewarder data in %s", cmd_global(ctx)->data);
    bool lost = rewarder_files_lost_log(store_disk_real(), s->root);
    if (out_lost != NULL)
        *out_lost = lost;
    else if (lost)
        return cmd_fail(
            ctx, DAMAGED,
            "registry.log is missing, and sealed runs are there: the service will not start. Put it back, "
            "or let "
            "`fsck --repair` list the runs anew: those that are not settled then wait, quarantined");
    if (rewarder_registry_init(&s->r.registry) != ERR_OK)
        return cmd_fail(ctx, UNREADABLE, "out of memory");
    enum err e = rewarder_files_open(&s->r.files, store_disk_real(), s->root);
    buf_init(&s->log, LOG_MAX);
    if (e == ERR_OK)
        e = rewarder_keys_recover(&s->r.keys, &s->r.files);
    if (e == ERR_LOCKED)
        return cmd_fail(ctx, UNREADABLE, "a running service holds %s: stop it first", s->root);
    return e == ERR_OK ? CMD_OK : cmd_fail(ctx, UNREADABLE, "cannot open %s: %s", s->root, err_title(e));
}

static void close_shop(struct shop *s) RT_BLOCKS
{
    rewarder_registry_fini(&s->r.registry);
    rewarder_files_close(&s->r.files);
    rewarder_keys_fini(&s->r.keys);
    buf_fini(&s->log);
}

/* ---- fsck: runs ---- */

static bool has_settlement(struct shop *s, const char *tenant, const char *epoch) RT_BLOCKS
{
    char path[STORE_PATH_MAX];
    struct store_stat st;
    rewarder_path_run(&s->r.files, false, tenant, epoch, "settlement.json", path);
    return store_disk_stat(store_disk_real(), path, &st) == ERR_OK;
}

static bool is_listed(const struct shop *s, const struct rewarder_run *run)
{
    char want[SHA256_TEXT_CHARS];
    sha256_format(&run->info.manifest_digest, want);
    return s->log.n && memmem(s->log.p, s->log.n, want, strlen(want)) != NULL;
}

/* Lines for a run that may have lost some. */
static void salvage(struct shop *s, struct rewarder_run *run) RT_BLOCKS
{
    struct buf line;
    buf_init(&line, 8192);
    if (!is_listed(s, run)) {
        run->info.n = ++s->last_n;
        rewarder_note_sealed(run, &run->info, &line);
        rewarder_log_frame(buf_bytes(&line), &s->log);
        buf_reset(&line);
    }
    if (!has_settlement(s, run->tenant, run->epoch)) {
        rewarder_note_quarantined(
            run,
            &(struct rewarder_quarantine){.n = run->info.n,
                                          .kind = "artifact",
                                          .reason = "registry.log was damaged: look, then release",
                                          .now_ms = clock_wall_ms(clock_real())},
            &line);
        rewarder_log_frame(buf_bytes(&line), &s->log);
    }
    buf_fini(&line);
}

static enum err visit_epoch(void *ctx, const char *epoch) RT_BLOCKS
{
    struct shop *s = ctx;
    struct rewarder_view *v = NULL;
    const char *bad;
    char where[160], what[128];
    snprintf(where, sizeof where, "runs/%s/%s", s->visited, epoch);
    enum err e = rewarder_view_open(
        &s->r.files, &(struct rewarder_view_spec){s->visited, epoch, .rebuild_tree = true}, &v, &bad);
    if (e == ERR_NOT_FOUND)
        return ERR_OK; /* never sealed, or swept */
    progress_step(&s->shown, ++s->runs, 0);
    if (e == ERR_VERSION) {
        snprintf(what, sizeof what,
                 "%s was written by another version of the format: leave it to the "
                 "program that wrote it",
                 bad);
        fault(s, what, where);
        return ERR_OK;
    }
    if (e != ERR_OK) {
        snprintf(what, sizeof what, "%s is missing or fails its hash (ron rewarder rebuild)",
                 bad ? bad : "a file");
        fault(s, what, where);
        return ERR_OK;
    }
    if (!rewarder_keys_signed(&s->r.keys, v->kid, v->manifest_file.bytes, v->signature)) {
        fault(s, "its signature is by no key that signs here (ron rewarder rebuild)", where);
        rewarder_view_unref(v);
        return ERR_OK;
    }
    struct rewarder_run *run = rewarder_run_from_view(s->visited, epoch, false, v);
    struct rewarder_run *listed =
        rewarder_registry_find(&s->r.registry, str_from_c(s->visited), str_from_c(epoch), false);
    if (listed && !sha256_eq(&listed->info.manifest_digest, &v->manifest_digest) && listed->info.leaves)
        fault(s, "its files are those of another run than the one registered", where);
    if (run && s->repair)
        salvage(s, run);
    rewarder_run_unref(listed);
    rewarder_run_unref(run);
    rewarder_view_unref(v);
    return ERR_OK;
}

static enum err visit_tenant(void *ctx, const char *tenant) RT_BLOCKS
{
    struct shop *s = ctx;
    char dir[STORE_PATH_MAX];
    snprintf(dir, sizeof dir, "%s/runs/%s", s->root, tenant);
    s->visited = tenant;
    return store_disk_list(store_disk_real(), dir, visit_epoch, s);
}

/* Registered, settled or waiting, but not on the disk. */
static void check_listed(struct shop *s) RT_BLOCKS
{
    for (size_t i = 0; i < s->r.registry.order_n; i++) {
        const struct rewarder_run *run = s->r.registry.order[i];
        char path[STORE_PATH_MAX], where[160];
        struct store_stat st;
        if (run->dry || run->info.swept || !rewarder_state_has_files(run->info.state))
            continue;
        rewarder_path_run(&s->r.files, false, run->tenant, run->epoch, "seal.json", path);
        snprintf(where, sizeof where, "runs/%s/%s", run->tenant, run->epoch);
        if (store_disk_stat(store_disk_real(), path, &st) != ERR_OK)
            fault(s, "it is registered, but its seal is gone (ron rewarder rebuild)", where);
    }
}

/* ---- fsck: inputs ---- */

static enum err visit_input(void *ctx, const char *name) RT_BLOCKS
{
    struct shop *s = ctx;
    struct sha256 cid, got;
    struct str n = str_from_c(name);
    struct rewarder_file file;
    struct rewarder_rows rows;
    struct rewarder_input in;
    char path[STORE_PATH_MAX];
    if (!str_ends(n, STR(".meta")) || hex_decode(str_of(n.p, n.n - 5), cid.b, 32) != ERR_OK)
        return ERR_OK;
    s->inputs++;
    rewarder_path_input(&s->r.files, &cid, ".raw", path);
    enum err e = rewarder_file_load(&s->r.files, path, &file);
    if (e == ERR_OK) {
        sha256_of(file.bytes.p, file.bytes.n, &got);
        rewarder_file_unload(&file);
    }
    if (e != ERR_OK || !sha256_eq(&got, &cid))
        fault(s, "it is not what its content id says", path + strlen(s->root) + 1);
    rewarder_path_input(&s->r.files, &cid, ".rows", path);
    e = rewarder_file_load(&s->r.files, path, &file);
    bool ok = e == ERR_OK && rewarder_rows_open(file.bytes, &rows) == ERR_OK &&
              (!rewarder_registry_input(&s->r.registry, &cid, &in) || sha256_eq(&rows.digest, &in.digest));
    if (e == ERR_OK)
        rewarder_file_unload(&file);
    if (!ok)
        fault(s, "they are not the canonical rows of their snapshot", path + strlen(s->root) + 1);
    return ERR_OK;
}

static enum err visit_input_dir(void *ctx, const char *name) RT_BLOCKS
{
    struct shop *s = ctx;
    char dir[STORE_PATH_MAX];
    snprintf(dir, sizeof dir, "%s/inputs/%s", s->root, name);
    return store_disk_list(store_disk_real(), dir, visit_input, s);
}

/* ---- fsck: the log ---- */

static enum err keep_line(void *ctx, struct bytes line)
{
    struct shop *s = ctx;
    json_error_t why;
    json_t *o = json_loadb((const char *)line.p, line.n, JSON_REJECT_DUPLICATES, &why);
    uint64_t n = (uint64_t)json_integer_value(json_object_get(o, "n"));
    s->last_n = n > s->last_n ? n : s->last_n;
    json_decref(o);
    rewarder_log_frame(line, &s->log);
    return s->log.err;
}

static enum err check_log(struct shop *s, bool *out_damaged) RT_BLOCKS
{
    struct rewarder_log_state st;
    enum err e = rewarder_log_scan(&s->r.files, keep_line, s, &st);
    if (e != ERR_OK)
        return e;
    *out_damaged = st.damaged;
    if (st.torn)
        fprintf(stderr,
                "registry.log: the last frame is cut off at byte %" PRIu64 "; the next start removes it\n",
                st.bad_at);
    if (st.damaged)
        fault(s, "damage before good frames: the service will not start (ron rewarder fsck --repair)",
              "registry.log");
    return ERR_OK;
}

int rewarder_fsck_run(struct cmd_ctx *ctx, int argc, char **argv)
{
    struct shop s;
    char dir[STORE_PATH_MAX];
    bool damaged = false, lost = false;
    (void)argc;
    (void)argv;
    int status = open_shop(&s, ctx, cmd_switch(ctx, "repair") ? &lost : NULL);
    if (status != CMD_OK)
        return status;
    progress_begin(&s.shown, ctx, "checking files");
    enum err e = check_log(&s, &damaged);
    if (lost)
        fault(&s, "missing", "registry.log");
    damaged = damaged || lost;
    s.repair = damaged && cmd_switch(ctx, "repair");
    if (e == ERR_OK && !damaged)
        e = rewarder_recover(&s.r);
    if (e == ERR_OK && !damaged)
        check_listed(&s);
    snprintf(dir, sizeof dir, "%s/runs", s.root);
    if (e == ERR_OK)
        e = store_disk_list(store_disk_real(), dir, visit_tenant, &s);
    snprintf(dir, sizeof dir, "%s/inputs", s.root);
    if (e == ERR_OK)
        e = store_disk_list(store_disk_real(), dir, visit_input_dir, &s);
    if (e == ERR_OK && s.repair)
        e = s.log.err == ERR_OK ? rewarder_log_rewrite(&s.r.files, buf_bytes(&s.log)) : s.log.err;
    progress_end(&s.shown);
    if (e != ERR_OK) {
        status = cmd_fail(ctx, UNREADABLE, "cannot read everything: %s", err_title(e));
    } else {
        if (cmd_global(ctx)->json)
            printf("{\"runs\":%" PRIu64 ",\"inputs\":%" PRIu64 ",\"faults\":%" PRIu64 ",\"repaired\":%s}\n",
                   s.runs, s.inputs, s.faults, s.repair ? "true" : "false");
        else
            printf("%" PRIu64 " runs, %" PRIu64 " inputs, %" PRIu64 " faults%s\n", s.runs, s.inputs,
                   s.faults, s.repair ? "; registry.log repaired" : "");
        status = s.faults > (uint64_t)s.repair ? DAMAGED : CMD_OK;
    }
    close_shop(&s);
    return status;
}

/* ---- rebuild ---- */

struct work {
    struct shop *shop;
    struct rewarder_run *run;
    struct rewarder_policy *policy;
    struct rewarder_file file;
    struct rewarder_rows rows;
    struct rewarder_calc *calc;
    struct buf manifest;
    char kid[REWARDER_KID_LEN + 1];
};

/* From run.json when it can be read, else from the given file; the registered hash decides. */
static bool find_policy(struct work *w, struct bytes text, bool manifest)
{
    json_error_t why;
    const char *member;
    json_t *root = json_loadb((const char *)text.p, text.n, 0, &why);
    json_t *list = json_object_get(root, "reward_policies");
    size_t n = manifest ? 1 : list ? json_array_size(list) : 1;
    for (size_t i = 0; i < n && !w->policy; i++) {
        const json_t *one = manifest ? json_object_get(root, "policy")
                            : list   ? json_array_get(list, i)
                                     : root;
        char *s = json_dumps(one, JSON_COMPACT);
        struct rewarder_policy *p;
        if (s && rewarder_policy_create(bytes_of(s, strlen(s)), &p, &member) == ERR_OK) {
            if (sha256_eq(&p->hash, &w->run->info.policy_hash))
                w->policy = p;
            else
                rewarder_policy_destroy(p);
        }
        free(s);
    }
    json_decref(root);
    return w->policy != NULL;
}

static int load_policy(struct work *w) RT_BLOCKS
{
    struct cmd_ctx *ctx = w->shop->ctx;
    struct rewarder_file file;
    struct buf text;
    char path[STORE_PATH_MAX];
    const char *given = cmd_flag(ctx, "policy-file", NULL);
    rewarder_path_run(&w->shop->r.files, false, w->run->tenant, w->run->epoch, "run.json", path);
    if (rewarder_file_load(&w->shop->r.files, path, &file) == ERR_OK) {
        (void)find_policy(w, file.bytes, true);
        rewarder_file_unload(&file);
    }
    if (!w->policy && given) {
        buf_init(&text, 16 << 20);
        if (rewarder_read_file(ctx, given, &text) == CMD_OK)
            (void)find_policy(w, buf_bytes(&text), false);
        buf_fini(&text);
    }
    return w->policy
               ? CMD_OK
               : cmd_fail(ctx, UNREADABLE,
                          "run.json is gone: name the policy with --policy-file (its hash must be the "
                          "registered one)");
}

static int compute_again(struct work *w) RT_BLOCKS
{
    struct cmd_ctx *ctx = w->shop->ctx;
    const struct rewarder_run_info *i = &w->run->info;
    char path[STORE_PATH_MAX];
    unsigned index;
    struct sha256 digest;
    rewarder_path_input(&w->shop->r.files, &i->inputs_cid, ".rows", path);
    if (rewarder_file_load(&w->shop->r.files, path, &w->file) != ERR_OK ||
        rewarder_rows_open(w->file.bytes, &w->rows) != ERR_OK || !sha256_eq(&w->rows.digest, &i->digest))
        return cmd_fail(ctx, UNREADABLE, "the inputs of the run are not stored any more, or are damaged");
    enum err e = rewarder_calc_create(&w->rows, w->policy, i->pool.declared, PARTITION, &w->calc, &index);
    for (enum rewarder_phase ph = REWARDER_SCORES; e == ERR_OK && ph < REWARDER_PHASES; ph++) {
        if (isatty(STDERR_FILENO))
            fprintf(stderr, "\r%-10s", rewarder_phase_name(ph));
        for (uint64_t p = 0; e == ERR_OK && p < rewarder_calc_parts(w->calc, ph); p++)
            e = rewarder_calc_part(w->calc, ph, p);
        if (e == ERR_OK)
            e = rewarder_calc_close(w->calc, ph);
    }
    if (e != ERR_OK)
        return cmd_fail(ctx, DAMAGED, "the computation fails: %s", err_title(e));
    const struct rewarder_result *res = rewarder_calc_result(w->calc);
    rewarder_manifest_write(&(struct rewarder_manifest){.tenant = str_from_c(w->run->tenant),
                                                        .epoch = str_from_c(w->run->epoch),
                                                        .policy = w->policy,
                                                        .rows = &w->rows,
                                                        .pool = i->pool,
                                                        .result = res},
                            &w->manifest);
    sha256_of(w->manifest.p, w->manifest.n, &digest);
    if (w->manifest.err != ERR_OK || !sha256_eq(&digest, &i->manifest_digest) ||
        !sha256_eq(&res->root.hash, &i->root))
        return cmd_fail(ctx, DAMAGED, "the result is not the registered one: nothing was changed");
    return CMD_OK;
}

static enum err put(struct work *w, const char *name, struct bytes b) RT_BLOCKS
{
    char path[STORE_PATH_MAX];
    rewarder_path_run(&w->shop->r.files, false, w->run->tenant, w->run->epoch, name, path);
    return store_file_replace(store_disk_real(), path, b);
}

/* Ed25519 is deterministic: signing the same bytes again gives the same signature. */
static enum err put_signature(struct work *w) RT_BLOCKS
{
    uint8_t sig[ED25519_SIGNATURE_BYTES];
    char name[64], path[STORE_PATH_MAX], key[STORE_PATH_MAX];
    struct store_stat st;
    snprintf(key, sizeof key, "%s/keys/rewarder.ed25519", cmd_global(w->shop->ctx)->data);
    enum err e = rewarder_keys_use(&w->shop->r.keys, &w->shop->r.files, store_disk_real(), key, false);
    if (e != ERR_OK)
        return e;
    struct rewarder_signer *signer = rewarder_keys_signer(&w->shop->r.keys);
    memcpy(w->kid, signer->public.kid, sizeof w->kid);
    snprintf(name, sizeof name, "sigs/%s.sig", w->kid);
    rewarder_path_run(&w->shop->r.files, false, w->run->tenant, w->run->epoch, "sigs", path);
    e = store_disk_stat(store_disk_real(), path, &st) == ERR_OK
            ? ERR_OK
            : rewarder_files_mkdirs(&w->shop->r.files, path);
    if (e == ERR_OK)
        e = ed25519_sign(signer->key, buf_bytes(&w->manifest), sig);
    rewarder_signer_unref(signer);
    return e == ERR_OK ? put(w, name, bytes_of(sig, sizeof sig)) : e;
}

static enum err put_seal(struct work *w) RT_BLOCKS
{
    char storage[1024];
    struct buf b;
    buf_init_fixed(&b, storage, sizeof storage);
    rewarder_write_seal("", &w->run->info, w->kid, &b);
    return b.err == ERR_OK ? put(w, "seal.json", buf_bytes(&b)) : b.err;
}

/* The files fit each other, and one of our keys says so. */
static bool is_vouched_for(struct work *w) RT_BLOCKS
{
    struct rewarder_view *v;
    const char *bad;
    if (rewarder_view_open(
            &w->shop->r.files,
            &(struct rewarder_view_spec){w->run->tenant, w->run->epoch, .rebuild_tree = true}, &v,
            &bad) != ERR_OK)
        return false;
    bool ours = rewarder_keys_signed(&w->shop->r.keys, v->kid, v->manifest_file.bytes, v->signature);
    rewarder_view_unref(v);
    return ours;
}

/* What another version wrote is not damage, and is not written over. */
static int refuse_other_version(struct work *w) RT_BLOCKS
{
    struct rewarder_view *v = NULL;
    const char *bad;
    enum err e = rewarder_view_open(
        &w->shop->r.files,
        &(struct rewarder_view_spec){w->run->tenant, w->run->epoch, .rebuild_tree = true}, &v, &bad);
    rewarder_view_unref(v);
    return e == ERR_VERSION ? cmd_fail(w->shop->ctx, CMD_REFUSED, "%s: %s", bad, rewarder_view_words(e))
                            : CMD_OK;
}

static int install(struct work *w) RT_BLOCKS
{
    struct buf commitment;
    const struct rewarder_tree *tree = rewarder_calc_tree(w->calc);
    size_t tree_n = rewarder_tree_bytes(tree);
    uint8_t *bytes = malloc(tree_n);
    buf_init(&commitment, 4096);
    rewarder_commitment_write(rewarder_calc_result(w->calc), &commitment);
    if (bytes)
        rewarder_tree_encode(tree, bytes);
    enum err e = bytes && commitment.err == ERR_OK ? put(w, "payouts.bin", rewarder_calc_file(w->calc))
                                                   : ERR_NO_MEMORY;
    if (e == ERR_OK)
        e = put(w, "tree.bin", bytes_of(bytes, tree_n));
    if (e == ERR_OK)
        e = put(w, "commitment", buf_bytes(&commitment));
    if (e == ERR_OK)
        e = put(w, "run.json", buf_bytes(&w->manifest));
    /* Seal and signature are made again only when they do not hold any more: they say when and for whom. */
    if (e == ERR_OK && !is_vouched_for(w)) {
        e = put_signature(w);
        if (e == ERR_OK)
            e = put_seal(w);
        if (e == ERR_OK && !is_vouched_for(w))
            e = ERR_ARTIFACT_CORRUPT;
    }
    free(bytes);
    buf_fini(&commitment);
    return e == ERR_OK ? CMD_OK
                       : cmd_fail(w->shop->ctx, UNREADABLE, "cannot write the run: %s", err_title(e));
}

int rewarder_rebuild_run(struct cmd_ctx *ctx, int argc, char **argv)
{
    struct shop s;
    struct work w = {.shop = &s};
    (void)argc;
    int status = open_shop(&s, ctx, NULL);
    if (status != CMD_OK)
        return status;
    buf_init(&w.manifest, 1 << 20);
    enum err e = rewarder_recover(&s.r);
    if (e != ERR_OK)
        status =
            cmd_fail(ctx, UNREADABLE, "registry.log cannot be read (ron rewarder fsck): %s", err_title(e));
    if (status == CMD_OK) {
        w.run = rewarder_registry_find(&s.r.registry, str_from_c(cmd_flag(ctx, "tenant", "default")),
                                       str_from_c(argv[0]), false);
        if (!w.run || !w.run->info.leaves)
            status = cmd_fail(ctx, CMD_REFUSED, "no sealed run of epoch %s is registered", argv[0]);
    }
    if (status == CMD_OK)
        status = refuse_other_version(&w);
    if (status == CMD_OK)
        status = load_policy(&w);
    if (status == CMD_OK)
        status = compute_again(&w);
    if (status == CMD_OK)
        status = install(&w);
    if (status == CMD_OK)
        printf(cmd_global(ctx)->json ? "{\"epoch\":\"%s\",\"recipients\":%" PRIu64 "}\n"
                                     : "rebuilt: epoch %s, %" PRIu64 " recipients, the registered root\n",
               w.run->epoch, w.run->info.paid);
    rewarder_calc_destroy(w.calc);
    rewarder_file_unload(&w.file);
    rewarder_policy_destroy(w.policy);
    rewarder_run_unref(w.run);
    buf_fini(&w.manifest);
    close_shop(&s);
    return status;
}
