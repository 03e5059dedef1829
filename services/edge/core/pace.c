#include "services/edge/core/pace.h"

#include <stdbool.h>

void edge_pace_begin(struct edge_pace *p, struct edge_pace_now now)
{
    p->crowded_until_ns = INT64_MIN;
    edge_pace_fresh(p, now);
}

void edge_pace_fresh(struct edge_pace *p, struct edge_pace_now now)
{
    *p = (struct edge_pace){.cpu_ns = now.cpu_ns,
                            .wall_ns = now.wall_ns,
                            .served = now.served,
                            .crowded_until_ns = p->crowded_until_ns};
}

/* When the bytes of this turn may be over at the earliest. */
static int64_t due_ns(const struct edge_pace *p, uint64_t rate)
{
    unsigned __int128 takes = rate ? (unsigned __int128)p->bytes * 1000000000u / rate : 0;
    return takes < (uint64_t)(INT64_MAX - p->wall_ns) ? p->wall_ns + (int64_t)takes : INT64_MAX;
}

int64_t edge_pace_turn(struct edge_pace *p, struct edge_pace_now now, uint64_t bytes, uint64_t rate)
{
    p->bytes += bytes;
    int64_t used = now.cpu_ns - p->cpu_ns, due = due_ns(p, rate);
    if (used < EDGE_PACE_TURN_NS && due <= now.wall_ns)
        return 0;
    if (now.wall_ns - p->wall_ns - used >= EDGE_PACE_STOOD_NS && now.served != p->served)
        p->crowded_until_ns = now.wall_ns + EDGE_PACE_REMEMBER_NS;
    bool crowded = now.wall_ns < p->crowded_until_ns;
    int64_t until = now.wall_ns + (crowded ? EDGE_PACE_CROWDED_REST_NS : EDGE_PACE_REST_NS);
    now.wall_ns = until > due ? until : due; /* waking later than that is standing in line */
    edge_pace_fresh(p, now);
    return now.wall_ns;
}
