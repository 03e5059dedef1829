/* `ron rewarder`: the commands and their flags. What each does is in the files beside this one: compute, look, shadow, seal, fetch,
 * verify, and offline for what works on the files of a stopped service. */
#include "ron/cmd_rewarder.h"

#include "ron/services.h"

static const struct cmd_flag seal_flags[] = {
    {"epoch", CMD_VALUE, "E", "the epoch this usage belongs to"},
    {"tenant", CMD_VALUE, "T", "the tenant (default: default)"},
    {"salt", CMD_SWITCH, NULL, "salt the leaves, so that proofs reveal no names"},
    {"out", CMD_VALUE, "FILE", "where the snapshot goes (default: standard output)"},
    {NULL, CMD_SWITCH, NULL, NULL}};
static const struct cmd_flag compute_flags[] = {
    {"inputs", CMD_VALUE, "CID|FILE", "the snapshot; a file is uploaded first"},
    {"policy", CMD_VALUE, "ID", "the reward policy"},
    {"dry-run", CMD_SWITCH, NULL, "claim and emit nothing"},
    {"wait", CMD_SWITCH, NULL, "wait until it is settled, held or refused"},
    {NULL, CMD_SWITCH, NULL, NULL}};
static const struct cmd_flag show_flags[] = {{"dry-run", CMD_SWITCH, NULL, "the epoch's dry run"},
                                             {NULL, CMD_SWITCH, NULL, NULL}};
static const struct cmd_flag emit_flags[] = {
    {"recheck", CMD_SWITCH, NULL, "ask the ledger for every unit again and send what it does not know"},
    {NULL, CMD_SWITCH, NULL, NULL}};
static const struct cmd_flag reason_flags[] = {{"reason", CMD_VALUE, "TEXT", "why"},
                                               {NULL, CMD_SWITCH, NULL, NULL}};
static const struct cmd_flag release_flags[] = {
    {"reason", CMD_VALUE, "TEXT", "why"},
    {"discard", CMD_SWITCH, NULL, "free the epoch instead of resuming"},
    {NULL, CMD_SWITCH, NULL, NULL}};
static const struct cmd_flag shadow_flags[] = {
    {"inputs", CMD_VALUE, "CID|FILE", "the snapshot"},
    {"policy-file", CMD_VALUE, "FILE", "the candidate policy"},
    {"against", CMD_VALUE, "ID", "the policy it is compared with (default: the configured one)"},
    {NULL, CMD_SWITCH, NULL, NULL}};
static const struct cmd_flag verify_flags[] = {
    {"inputs", CMD_VALUE, "FILE", "prove that this snapshot is what was used"},
    {"key", CMD_VALUE, "PUB.pem", "the key that must have signed (default: pub.pem in the directory)"},
    {"ledger", CMD_VALUE, "URL", "compare every leaf with its entry in this ledger"},
    {"commitment", CMD_SWITCH, NULL,
     "only sums, tree, manifest and signature: not who should have got what"},
    {NULL, CMD_SWITCH, NULL, NULL}};
static const struct cmd_flag proof_flags[] = {
    {"run", CMD_VALUE, "run.json", "the manifest"},
    {"key", CMD_VALUE, "PUB.pem", "the key that signed it"},
    {"sig", CMD_VALUE, "FILE", "its signature (default: sigs/ beside the manifest)"},
    {NULL, CMD_SWITCH, NULL, NULL}};

static const struct cmd_flag fsck_flags[] = {
    {"repair", CMD_SWITCH, NULL,
     "salvage a damaged registry.log; unsettled runs are quarantined for a look"},
    {NULL, CMD_SWITCH, NULL, NULL}};
static const struct cmd_flag rebuild_flags[] = {
    {"tenant", CMD_VALUE, "T", "the tenant (default: default)"},
    {"policy-file", CMD_VALUE, "FILE", "the policy, when run.json cannot be read any more"},
    {NULL, CMD_SWITCH, NULL, NULL}};

static const struct cmd commands[] = {
    {"seal", "USAGE.csv", "turn a usage table into a snapshot",
     "  ron rewarder seal usage.csv --epoch 2026-W41 --out usage.ndjson", seal_flags, 1, 1,
     rewarder_seal_run},
    {"put", "FILE", "upload a snapshot", "  ron rewarder put usage.ndjson", NULL, 1, 1, rewarder_put_run},
    {"compute", "EPOCH", "compute an epoch, seal it and pay it",
     "  ron rewarder compute 2026-W41 --inputs usage.ndjson --wait", compute_flags, 1, 1,
     rewarder_compute_run},
    {"list", "", "runs, newest first", "  ron rewarder list", NULL, 0, 0, rewarder_list_run},
    {"show", "EPOCH", "one run", "  ron rewarder show 2026-W41", show_flags, 1, 1, rewarder_show_run},
    {"explain", "EPOCH ACCOUNT", "why an account got what it got",
     "  ron rewarder explain 2026-W41 acct:alice", NULL, 2, 2, rewarder_explain_run},
    {"payout", "EPOCH ACCOUNT", "the same as explain", "  ron rewarder payout 2026-W41 acct:alice --json",
     NULL, 2, 2, rewarder_explain_run},
    {"csv", "EPOCH", "every payout as CSV", "  ron rewarder csv 2026-W41 > payouts.csv", NULL, 1, 1,
     rewarder_csv_run},
    {"emit", "EPOCH", "settle a sealed run, or check a settled one again",
     "  ron rewarder emit 2026-W41 --recheck", emit_flags, 1, 1, rewarder_emit_run},
    {"quarantine", "EPOCH", "stop a run before its next unit leaves",
     "  ron rewarder quarantine 2026-W41 --reason 'wrong snapshot'", reason_flags, 1, 1,
     rewarder_quarantine_run},
    {"release", "EPOCH", "resume or discard a quarantined run", "  ron rewarder release 2026-W41 --discard",
     release_flags, 1, 1, rewarder_release_run},
    {"shadow", "", "who would gain and lose under another policy",
     "  ron rewarder shadow --inputs usage.ndjson --policy-file candidate.json", shadow_flags, 0, 0,
     rewarder_shadow_run},
    {"fetch", "EPOCH DIR", "download every file of a run", "  ron rewarder fetch 2026-W41 run/", NULL, 2, 2,
     rewarder_fetch_run},
    {"verify", "DIR", "recompute a fetched run without the service",
     "  ron rewarder verify run/ --inputs usage.ndjson --key pub.pem --ledger http://127.0.0.1:7410",
     verify_flags, 1, 1, rewarder_verify_run},
    {"check-proof", "PAYOUT.json", "check one payout's proof against a manifest",
     "  ron rewarder check-proof alice.json --run run/run.json --key pub.pem", proof_flags, 1, 1,
     rewarder_check_proof_run},
    {"fsck", "", "check every stored file of a stopped service", "  ron rewarder fsck --data ron-data",
     fsck_flags, 0, 0, rewarder_fsck_run},
    {"rebuild", "EPOCH", "compute a run's damaged files again from its stored inputs (service stopped)",
     "  ron rewarder rebuild 2026-W41 --data ron-data", rebuild_flags, 1, 1, rewarder_rebuild_run},
    {.run = NULL},
};

const struct cmd_group cmd_rewarder = {
    .noun = "rewarder",
    .summary = "per-epoch rewards: compute, explain, settle, verify",
    .commands = commands,
    .service = &rewarder_svc,
    .exits = "verify, check-proof, fsck and rebuild end with 1 when something is wrong, 3 when it cannot "
             "be read (or the service runs)"};
