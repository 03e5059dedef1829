#include "ron/seal_csv.h"

#include <string.h>

#include "base/str.h"

/* The next line cut into fields: how many there are, one more than fit when they do not, 0 at the end. */
static int next_line(struct seal_csv *c, struct str *fields)
{
    if (c->text.n == 0)
        return 0;
    const char *nl = memchr(c->text.p, '\n', c->text.n);
    size_t n = nl ? (size_t)(nl - c->text.p) : c->text.n;
    struct str line = str_of(c->text.p, n);
    c->text.p += n + (nl != NULL);
    c->text.n -= n + (nl != NULL);
    c->line++;
    if (line.n && line.p[line.n - 1] == '\r')
        line.n--;
    int count = 0;
    while (line.p && count < SEAL_COLUMNS_MAX)
        line = str_cut(line, ',', &fields[count++]);
    return line.p ? SEAL_COLUMNS_MAX + 1 : count;
}

const char *seal_csv_open(struct seal_csv *c, struct str text)
{
    *c = (struct seal_csv){.text = text};
    c->columns = next_line(c, c->column);
    if (c->columns < 2 || c->columns > SEAL_COLUMNS_MAX || !str_eq(c->column[0], STR("account")))
        return "the first line names the columns: account,<dimension>,... (1 to 16 dimensions)";
    return NULL;
}

const char *seal_csv_next(struct seal_csv *c, struct buf *out, bool *out_more, int *out_column)
{
    struct str f[SEAL_COLUMNS_MAX];
    int n;
    *out_column = 0;
    do
        n = next_line(c, f);
    while (n == 1 && f[0].n == 0);
    c->fields = n;
    *out_more = n != 0;
    if (n == 0)
        return NULL;
    if (n != c->columns)
        return "it has not as many fields as the header";
    if (!str_is_account(f[0])) {
        *out_column = 1;
        return "the account may only hold A-Z a-z 0-9 : / . _ -";
    }
    buf_printf(out, "[\"%.*s\"", STR_ARG(f[0]));
    for (int i = 1; i < n; i++) {
        uint64_t v;
        *out_column = i + 1;
        if (str_parse_u64(f[i], &v) != ERR_OK || v > INT64_MAX)
            return "usage is a whole number from 0 to 2^63-1";
        buf_printf(out, ",%.*s", STR_ARG(f[i]));
    }
    buf_puts(out, "]\n");
    c->rows++;
    *out_column = 0;
    return NULL;
}
