#include "services/rewarder/policies.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"

struct rewarder_policy_ref *rewarder_policy_ref_create(struct rewarder_policy *p)
{
    struct rewarder_policy_ref *r = malloc(sizeof *r);
    if (!r)
        return NULL;
    atomic_init(&r->refs, 1);
    r->policy = p;
    return r;
}

struct rewarder_policy_ref *rewarder_policy_ref(struct rewarder_policy_ref *p)
{
    atomic_fetch_add_explicit(&p->refs, 1, memory_order_relaxed);
    return p;
}

void rewarder_policy_unref(struct rewarder_policy_ref *p)
{
    if (!p || atomic_fetch_sub_explicit(&p->refs, 1, memory_order_acq_rel) != 1)
        return;
    rewarder_policy_destroy(p->policy);
    free(p);
}

void rewarder_policies_init(struct rewarder_policies *p)
{
    rt_lock_init(&p->lock, "cfg_snapshot", 1);
    p->n = 0;
    p->assets = NULL;
    p->nobodys[0] = '\0';
}

void rewarder_policies_fini(struct rewarder_policies *p)
{
    for (size_t i = 0; i < p->n; i++)
        rewarder_policy_unref(p->list[i]);
    json_decref(p->assets);
    rt_lock_fini(&p->lock);
}

struct fresh {
    struct rewarder_policy_ref *list[REWARDER_POLICIES_MAX];
    size_t n;
    json_t *assets; /* of the file; NULL: it names none */
};

static void drop_all(struct fresh *f)
{
    json_decref(f->assets);
    f->assets = NULL;
    for (size_t i = 0; i < f->n; i++)
        rewarder_policy_unref(f->list[i]);
    f->n = 0;
}

static enum err add(struct fresh *f, struct rewarder_policy *p, const char **out_member)
{
    for (size_t i = 0; i < f->n; i++) {
        if (!strcmp(f->list[i]->policy->id, p->id)) {
            rewarder_policy_destroy(p);
            *out_member = "id";
            return ERR_BAD_POLICY;
        }
    }
    struct rewarder_policy_ref *ref = f->n < REWARDER_POLICIES_MAX ? rewarder_policy_ref_create(p) : NULL;
    if (!ref) {
        rewarder_policy_destroy(p);
        return ERR_NO_MEMORY;
    }
    f->list[f->n++] = ref;
    return ERR_OK;
}

/* Which assets exist, if the file says so: a list of names, or an object whose members they are. */
static bool has_asset(const json_t *assets, const char *name)
{
    bool found = !assets || json_object_get(assets, name);
    for (size_t i = 0; !found && i < json_array_size(assets); i++) {
        const char *one = json_string_value(json_array_get(assets, i));
        found = one && !strcmp(one, name);
    }
    return found;
}

/* The first member that nobody reads, or NULL. Misspelt, our own would leave us with the built-in policy. */
static const char *nobodys(json_t *root)
{
    static const char *const known[] = {"version", "assets", "frozen",
                                        "kinds",   "limits", "reward_policies"};
    for (void *at = json_object_iter(root); at; at = json_object_iter_next(root, at)) {
        bool is = false;
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            is = is || !strcmp(json_object_iter_key(at), known[i]);
        if (!is)
            return json_object_iter_key(at);
    }
    return NULL;
}

/* The shared policy file is an object; other services read other members of it. */
static enum err read_file(struct bytes text, struct fresh *f, char nobody[REWARDER_MEMBER_CHARS],
                          const char **out_member)
{
    json_error_t why;
    json_t *root = json_loadb((const char *)text.p, text.n, JSON_REJECT_DUPLICATES, &why);
    json_t *array = json_object_get(root, "reward_policies");
    enum err e = json_is_object(root) && (!array || json_is_array(array)) ? ERR_OK : ERR_BAD_POLICY;
    f->assets = json_incref(json_object_get(root, "assets"));
    *out_member = "reward_policies";
    const char *stranger = e == ERR_OK ? nobodys(root) : NULL;
    if (stranger) {
        snprintf(nobody, REWARDER_MEMBER_CHARS, "%s", stranger);
        *out_member = nobody;
        e = ERR_BAD_POLICY;
    }
    for (size_t i = 0; e == ERR_OK && i < json_array_size(array); i++) {
        struct rewarder_policy *p;
        char *one = json_dumps(json_array_get(array, i), JSON_COMPACT | JSON_ENCODE_ANY);
        e = one ? rewarder_policy_create(bytes_of(one, strlen(one)), &p, out_member) : ERR_NO_MEMORY;
        free(one);
        if (e == ERR_OK && !has_asset(f->assets, p->asset)) {
            rewarder_policy_destroy(p);
            *out_member = "asset";
            e = ERR_BAD_POLICY;
        }
        if (e == ERR_OK)
            e = add(f, p, out_member);
    }
    bool absent = e == ERR_OK && !array;
    json_decref(root);
    if (absent)
        return add(f, rewarder_policy_create_default(), out_member);
    return e;
}

enum err rewarder_policies_load(struct rewarder_policies *p, struct bytes text, const char **out_member)
{
    struct fresh fresh = {.n = 0}, old = {.n = 0};
    enum err e;
    if (text.p) {
        e = read_file(text, &fresh, p->nobodys, out_member);
    } else {
        struct rewarder_policy *builtin = rewarder_policy_create_default();
        e = builtin ? add(&fresh, builtin, out_member) : ERR_NO_MEMORY;
    }
    if (e != ERR_OK) {
        drop_all(&fresh);
        return e;
    }
    rt_lock_take(&p->lock);
    memcpy(old.list, p->list, sizeof old.list);
    old.n = p->n;
    old.assets = p->assets;
    memcpy(p->list, fresh.list, sizeof p->list);
    p->n = fresh.n;
    p->assets = fresh.assets;
    rt_lock_release(&p->lock);
    drop_all(&old);
    return ERR_OK;
}

bool rewarder_policies_know_asset(struct rewarder_policies *p, const char *name)
{
    rt_lock_take(&p->lock);
    bool known = has_asset(p->assets, name);
    rt_lock_release(&p->lock);
    return known;
}

struct rewarder_policy_ref *rewarder_policies_find(struct rewarder_policies *p, struct str id)
{
    struct rewarder_policy_ref *found = NULL;
    rt_lock_take(&p->lock);
    for (size_t i = 0; i < p->n && !found; i++)
        if (str_eq_c(id, p->list[i]->policy->id))
            found = rewarder_policy_ref(p->list[i]);
    rt_lock_release(&p->lock);
    return found;
}

size_t rewarder_policies_list(struct rewarder_policies *p, struct str tenant,
                              struct rewarder_policy_ref **out)
{
    size_t n = 0;
    rt_lock_take(&p->lock);
    for (size_t i = 0; i < p->n; i++)
        if (rewarder_policy_for_tenant(p->list[i]->policy, tenant))
            out[n++] = rewarder_policy_ref(p->list[i]);
    rt_lock_release(&p->lock);
    return n;
}
