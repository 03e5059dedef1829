#include "obs/prom_read.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"

static double number(struct str text)
{
    char copy[64];
    if (text.n >= sizeof copy)
        return 0;
    memcpy(copy, text.p, text.n);
    copy[text.n] = 0;
    return strtod(copy, NULL); /* knows +Inf */
}

/* name{labels} value, or name value */
static bool parse(struct str line, struct obs_prom_sample *out)
{
    const char *space = line.n ? memrchr(line.p, ' ', line.n) : NULL;
    if (!space || line.p[0] == '#')
        return false;
    struct str left = str_of(line.p, (size_t)(space - line.p));
    const char *brace = memchr(left.p, '{', left.n);
    out->value = number(str_of(space + 1, line.n - left.n - 1));
    out->name = brace ? str_of(left.p, (size_t)(brace - left.p)) : left;
    out->labels = str_of("", 0);
    if (brace && left.p[left.n - 1] == '}')
        out->labels = str_of(brace + 1, left.n - out->name.n - 2);
    return true;
}

bool obs_prom_next(struct str *io_text, struct obs_prom_sample *out)
{
    while (io_text->n) {
        const char *end = memchr(io_text->p, '\n', io_text->n);
        size_t n = end ? (size_t)(end - io_text->p) : io_text->n;
        struct str line = str_of(io_text->p, n);
        *io_text = str_of(io_text->p + n + (end != NULL), io_text->n - n - (end != NULL));
        if (parse(line, out))
            return true;
    }
    return false;
}

struct str obs_prom_label(const struct obs_prom_sample *s, const char *name)
{
    size_t n = strlen(name);
    for (const char *p = s->labels.p, *end = p + s->labels.n; p < end;) {
        const char *equals = memchr(p, '=', (size_t)(end - p));
        const char *close =
            equals && equals + 2 <= end ? memchr(equals + 2, '"', (size_t)(end - equals - 2)) : NULL;
        if (!close)
            break;
        if ((size_t)(equals - p) == n && memcmp(p, name, n) == 0)
            return str_of(equals + 2, (size_t)(close - equals - 2));
        p = close + 1 + (close + 1 < end && close[1] == ',');
    }
    return str_of("", 0);
}

static void add_bucket(struct obs_prom_histogram *h, double bound, double count)
{
    size_t i = 0;
    while (i < h->n && h->bound[i] < bound)
        i++;
    if (i == h->n || h->bound[i] > bound) {
        if (h->n == OBS_PROM_BOUNDS_MAX)
            return;
        memmove(h->bound + i + 1, h->bound + i, (h->n - i) * sizeof h->bound[0]);
        memmove(h->count + i + 1, h->count + i, (h->n - i) * sizeof h->count[0]);
        h->bound[i] = bound;
        h->count[i] = 0;
        h->n++;
    }
    h->count[i] += count;
}

void obs_prom_histogram_read(struct str text, const char *name, struct obs_prom_histogram *out)
{
    size_t n = strlen(name);
    struct obs_prom_sample s;
    *out = (struct obs_prom_histogram){.n = 0};
    while (obs_prom_next(&text, &s))
        if (s.name.n == n + 7 && memcmp(s.name.p, name, n) == 0 && memcmp(s.name.p + n, "_bucket", 7) == 0)
            add_bucket(out, number(obs_prom_label(&s, "le")), s.value);
}

void obs_prom_histogram_since(struct obs_prom_histogram *io_now, const struct obs_prom_histogram *before)
{
    if (before->n != io_now->n || obs_prom_histogram_total(before) > obs_prom_histogram_total(io_now))
        return;
    for (size_t i = 0; i < io_now->n; i++)
        io_now->count[i] -= before->count[i];
}

double obs_prom_histogram_total(const struct obs_prom_histogram *h)
{
    return h->n ? h->count[h->n - 1] : 0;
}

double obs_prom_histogram_quantile(const struct obs_prom_histogram *h, double q)
{
    double rank = q * obs_prom_histogram_total(h), lower = 0, below = 0;
    if (obs_prom_histogram_total(h) <= 0)
        return -1;
    for (size_t i = 0; i < h->n; i++) {
        if (h->count[i] >= rank && h->count[i] > below)
            return isinf(h->bound[i])
                       ? lower
                       : lower + (h->bound[i] - lower) * (rank - below) / (h->count[i] - below);
        lower = h->bound[i];
        below = h->count[i];
    }
    return lower;
}
