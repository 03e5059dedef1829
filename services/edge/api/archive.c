/* GET /edge/packs/{pack}.pmtiles: the whole archive with ranges, for clients that read PMTiles themselves. */
#include "services/edge/api/api.h"
#include "services/edge/pack.h"
#include "services/edge/serve.h"

enum { SEAL_WAIT_MAX_S = 600 };

/* At the rate that is allowed; never, when nothing is sealed at all. */
static unsigned seconds_left(struct edge_pack *p, uint64_t rate)
{
    uint64_t done = atomic_load_explicit(&p->sealed_bytes, memory_order_relaxed), size = p->file->size;
    uint64_t s = rate ? ((size > done ? size - done : 0) + rate - 1) / rate : SEAL_WAIT_MAX_S;
    return s < 1 ? 1 : s > SEAL_WAIT_MAX_S ? SEAL_WAIT_MAX_S : (unsigned)s;
}

void edge_get_archive(struct net_req *rq, void *ctx)
{
    struct edge *e = ctx;
    struct str name = net_req_param_raw(rq, "file");
    if (!str_ends(name, STR(".pmtiles"))) {
        edge_refuse(e, rq, ERR_NOT_FOUND, EDGE_R_NONE, "there is only {pack}.pmtiles here");
        return;
    }
    struct edge_generation *g = edge_pin(e);
    struct edge_pack *p = edge_pack_for(e, rq, g, str_of(name.p, name.n - 8));
    if (p && p->kind != EDGE_PACK_PMTILES)
        edge_refuse(e, rq, ERR_NOT_FOUND, EDGE_R_NONE, "the pack is not a PMTiles archive");
    else if (p && !atomic_load_explicit(&p->sealed,
                                        memory_order_acquire)) /* pairs with the verifier's release */
        edge_refuse_after(e, rq, ERR_PACK_UNAVAILABLE, EDGE_R_PACK, "the archive is still being hashed",
                          seconds_left(p, edge_config(e)->packs_seal_rate));
    else if (p) {
        struct edge_repr r = {.digest = p->archive,
                              .size = p->file->size,
                              .type = "application/vnd.pmtiles",
                              .from = EDGE_FROM_PACK,
                              .since_s = p->since_s,
                              .max_age_s = edge_config(e)->cache_archive / 1000,
                              .age_s = -1,
                              .file = edge_file_ref(p->file)};
        edge_serve(e, rq, &r, false);
    }
    edge_unpin(g);
}
