#include "services/edge/api/api.h"

/* HEAD falls back to GET. */
#define READ(path, handler, at, name)                                                                      \
    {.method = "GET",                                                                                      \
     .pattern = path,                                                                                      \
     .fn = handler,                                                                                        \
     .flags = NET_ADMIT_LATE,                                                                              \
     .tag = at,                                                                                            \
     .label = name,                                                                                        \
     .headers = EDGE_SAFE_HEADERS},                                                                        \
    {                                                                                                      \
        .method = "OPTIONS", .pattern = path, .fn = edge_options, .flags = NET_ADMIT_LATE, .tag = at,      \
        .label = name, .headers = EDGE_SAFE_HEADERS                                                        \
    }
#define ADMIN(verb, path, handler, ms)                                                                     \
    {                                                                                                      \
        .method = verb, .pattern = path, .fn = handler, .flags = NET_NO_ADMISSION, .tag = EDGE_AT_ADMIN,   \
        .timeout_ms = ms, .label = "/admin"                                                                \
    }

const struct net_route edge_routes[] = {
    READ("/edge/assets/{path*}", edge_get_asset, EDGE_AT_ASSETS, "/edge/assets"),
    READ("/edge/tiles/{pack}/{z}/{x}/{y}", edge_get_tile, EDGE_AT_TILES, "/edge/tiles"),
    READ("/edge/tiles/{file}", edge_get_tilejson, EDGE_AT_TILEJSON, "/edge/tilejson"),
    READ("/edge/packs/{file}", edge_get_archive, EDGE_AT_PACKS, "/edge/packs"),
    READ("/edge/cas/{digest}", edge_get_object, EDGE_AT_CAS, "/edge/cas"),
    ADMIN("GET", "/admin/packs", edge_admin_packs, 0),
    ADMIN("POST", "/admin/packs/reload", edge_admin_reload, 65000),
    ADMIN("GET", "/admin/fills", edge_admin_fills, 0),
    {.method = "GET",
     .pattern = "/admin/events",
     .fn = edge_admin_events,
     .flags = NET_NO_ADMISSION | NET_NO_DEADLINE,
     .tag = EDGE_AT_ADMIN,
     .label = "/admin"},
    ADMIN("POST", "/admin/cas/verify", edge_admin_verify, 35000),
    ADMIN("DELETE", "/admin/cas/{digest}", edge_admin_purge, 0),
    {.method = NULL},
};
