#include "services/rewarder/api/routes.h"

#include "services/rewarder/rewarder.h"

enum { UPLOAD_MS = 120000 };

const struct net_route rewarder_routes[] = {
    {"PUT", "/rewarder/inputs", rewarder_api_put_inputs, .flags = NET_STREAM_BODY,
     .body_max = (size_t)4 << 30 /* the configured limit is enforced piece by piece */,
     .timeout_ms = UPLOAD_MS},
    {"GET", "/rewarder/inputs/{cid}", rewarder_api_get_inputs, .flags = NET_WHILE_DRAINING},
    {"GET", "/rewarder/epochs", rewarder_api_list_epochs, .flags = NET_WHILE_DRAINING},
    {"GET", "/rewarder/epochs/{id}", rewarder_api_get_epoch, .flags = NET_WHILE_DRAINING},
    {"POST", "/rewarder/epochs/{id}/compute", rewarder_api_compute, .flags = 0},
    {"GET", "/rewarder/epochs/{id}/payouts", rewarder_api_get_payout, .flags = NET_WHILE_DRAINING},
    {"GET", "/rewarder/epochs/{id}/payouts.csv", rewarder_api_get_csv, .flags = NET_WHILE_DRAINING},
    {"GET", "/rewarder/epochs/{id}/artifacts/{name*}", rewarder_api_get_artifact,
     .flags = NET_WHILE_DRAINING},
    {"POST", "/rewarder/epochs/{id}/emit", rewarder_api_emit, .flags = 0},
    {"POST", "/rewarder/epochs/{id}/quarantine", rewarder_api_quarantine, .flags = 0},
    {"POST", "/rewarder/epochs/{id}/release", rewarder_api_release, .flags = 0},
    {"POST", "/rewarder/shadow", rewarder_api_post_shadow, .flags = 0},
    {"GET", "/rewarder/shadow/{sid}", rewarder_api_get_shadow, .flags = NET_WHILE_DRAINING},
    {"GET", "/rewarder/shadow/{sid}/diff.csv", rewarder_api_get_diff, .flags = NET_WHILE_DRAINING},
    {"GET", "/rewarder/policies", rewarder_api_policies, .flags = NET_WHILE_DRAINING},
    {"GET", "/rewarder/policies/{pid}", rewarder_api_policy, .flags = NET_WHILE_DRAINING},
    {"GET", "/rewarder/keys", rewarder_api_keys, .flags = NET_WHILE_DRAINING},
    {"GET", "/admin/events", rewarder_api_events, .flags = NET_NO_ADMISSION | NET_NO_DEADLINE},
    {.method = NULL},
};
