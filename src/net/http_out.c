/*
 * A connection's output: a list of pooled blocks (copied bytes), references (somebody's memory, alive until the request
 * that brought it is recycled) and file ranges. One writev takes as many as fit, so the responses of a pipelined batch
 * leave together; on plaintext connections files go through sendfile. What sendfile took is a reference to the file's pages: who
 * writes into the file changes what a slow client has not read yet, however long ago it was "sent". So a file that others may write
 * into is read, judged, and sent with what stands before it. A long part leaves a step at a time, and only what its source has at hand:
 * a loop that waits for a disk waits for all its clients.
 */
#include "net/http_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/check.h"

enum {
    IOV_BATCH = 64,
    FREE_BLOCKS_MAX = 256, /* 4 MiB per worker stay warm */
    TURN_BYTES = 4 << 20,  /* then others get their turn */
    READ_STEP = 64 << 10,
    PACE_STEP = 1 << 20, /* of a paced part, in one call */
    TLS_RECORD = 16384,
};

struct net_block *net_out__block(struct net_worker *w, size_t at_least)
{
    struct net_block *b;
    if (w->free_blocks && at_least <= NET_BLOCK) {
        b = (struct net_block *)(void *)w->free_blocks;
        w->free_blocks = b->out.next;
        w->free_block_n--;
    } else {
        size_t cap = at_least > NET_BLOCK ? at_least : NET_BLOCK;
        b = malloc(sizeof *b + cap);
        CHECK(b != NULL);
        b->cap = cap;
    }
    b->used = 0;
    b->out = (struct net_out){.kind = NET_OUT_BLOCK, .p = b->data};
    return b;
}

void net_out__block_free(struct net_worker *w, struct net_block *b)
{
    if (b->cap != NET_BLOCK || w->free_block_n >= FREE_BLOCKS_MAX) {
        free(b);
        return;
    }
    b->out.next = w->free_blocks;
    w->free_blocks = &b->out;
    w->free_block_n++;
}

static void append(struct net_conn *c, struct net_out *o)
{
    o->next = NULL;
    if (c->out_tail)
        c->out_tail->next = o;
    else
        c->out_head = o;
    c->out_tail = o;
}

static void grown(struct net_conn *c, size_t n)
{
    c->out_n += n;
    c->queued += n;
}

/* Room for n bytes in one piece at the end of the output; net_out__commit says how many were used. */
uint8_t *net_out__reserve(struct net_conn *c, size_t n)
{
    if (c->out_tail && c->out_tail->kind == NET_OUT_BLOCK) {
        struct net_block *b = (struct net_block *)(void *)c->out_tail;
        if (b->cap - b->used >= n)
            return b->data + b->used;
    }
    struct net_block *b = net_out__block(c->w, n);
    append(c, &b->out);
    return b->data;
}

void net_out__commit(struct net_conn *c, size_t n)
{
    struct net_block *b = (struct net_block *)(void *)c->out_tail;
    CHECK(b->used + n <= b->cap);
    b->used += n;
    b->out.n += n;
    grown(c, n);
}

void net_out__put(struct net_conn *c, const void *p, size_t n)
{
    if (n == 0)
        return;
    memcpy(net_out__reserve(c, n), p, n);
    net_out__commit(c, n);
}

static struct net_out *out_new(struct net_worker *w)
{
    struct net_out *o = w->free_outs;
    if (o)
        w->free_outs = o->next;
    else
        o = malloc(sizeof *o);
    CHECK(o != NULL);
    return o;
}

static void put_out(struct net_conn *c, const struct net_out *piece)
{
    if (piece->n == 0)
        return;
    struct net_out *o = out_new(c->w);
    *o = *piece;
    append(c, o);
    grown(c, o->n);
}

void net_out__ref(struct net_conn *c, struct bytes b)
{
    put_out(c, &(struct net_out){.kind = NET_OUT_REF, .p = b.p, .n = b.n});
}

void net_out__part(struct net_conn *c, const struct net_answer *a, const struct net_part *part)
{
    put_out(c, &(struct net_out){.kind = part->p ? NET_OUT_REF : NET_OUT_FILE,
                                 .shared = part->shared,
                                 .fd = a->fd,
                                 .off = part->off,
                                 .p = part->p,
                                 .n = part->n,
                                 .still = a->still,
                                 .ready = part->paced ? a->ready : NULL,
                                 .source_arg = a->release_arg});
}

static void out_free(struct net_worker *w, struct net_out *o)
{
    if (o->kind == NET_OUT_BLOCK) {
        net_out__block_free(w, (struct net_block *)(void *)o);
        return;
    }
    o->next = w->free_outs;
    w->free_outs = o;
}

static void pop(struct net_conn *c)
{
    struct net_out *o = c->out_head;
    c->out_head = o->next;
    if (!c->out_head)
        c->out_tail = NULL;
    out_free(c->w, o);
}

void net_out__free_all(struct net_conn *c)
{
    while (c->out_head)
        pop(c);
    c->out_n = 0;
}

static void sent(struct net_conn *c, size_t n)
{
    c->sent += n;
    c->out_n -= n;
    while (n > 0) {
        struct net_out *o = c->out_head;
        size_t take = n < o->n ? n : o->n;
        o->n -= take;
        o->off += (off_t)take;
        if (o->kind != NET_OUT_FILE)
            o->p += take;
        n -= take;
        if (o->n == 0)
            pop(c);
    }
}

static enum net_io failed(enum err *out_why)
{
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)
        return NET_IO_AGAIN;
    /* A mapping whose file became shorter: the kernel tells us instead of sending us a signal. */
    *out_why = errno == EFAULT || errno == EIO ? ERR_IO : ERR_DISCONNECTED;
    return NET_IO_ERROR;
}

static bool is_still(const struct net_out *o)
{
    return !o->still || o->still(o->source_arg);
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Of its next bytes, at most so many. */
static size_t at_hand(struct net_conn *c, const struct net_out *o, size_t most)
{
    size_t n = least(o->n, most);
    if (o->ready)
        n = o->ready(o->source_arg, o->off, least(n, PACE_STEP));
    c->starved = n == 0;
    return n;
}

static enum net_io nothing_at_hand(const struct net_conn *c, enum err *out_why)
{
    if (c->starved)
        return NET_IO_AGAIN;
    *out_why = ERR_IO; /* its file is another one now, or shorter than promised */
    return NET_IO_ERROR;
}

static bool by_reference(const struct net_out *o)
{
    return o->kind == NET_OUT_FILE && !o->shared;
}

/* What is read is what was promised, if it still is afterwards; 0: it is not. */
static size_t read_file(const struct net_out *o, uint8_t *to, size_t n)
{
    struct iovec v = {to, n};
    ssize_t r = preadv2(o->fd, &v, 1, o->off, RWF_NOWAIT);
    /* Not in memory any more, or (EOPNOTSUPP) nowhere else: as sendfile would. All of it: a TLS record that had to wait is asked for
     * again, and OpenSSL takes less than the first time for a mistake that ends the connection. */
    if (r < (ssize_t)v.iov_len)
        r = pread(o->fd, to, v.iov_len, o->off);
    return r > 0 && is_still(o) ? (size_t)r : 0;
}

static size_t read_shared(struct net_conn *c, const struct net_out *o, size_t n)
{
    if (!c->w->scratch)
        c->w->scratch = malloc(READ_STEP);
    CHECK(c->w->scratch != NULL);
    return read_file(o, c->w->scratch, n);
}

static enum net_io send_memory(struct net_conn *c, size_t *out_n, enum err *out_why)
{
    struct iovec iov[IOV_BATCH];
    size_t n = 0, asked = 0;
    bool mapped = false;
    struct net_out *o = c->out_head;
    for (; o && o->kind != NET_OUT_FILE && n < IOV_BATCH && is_still(o); o = o->next) {
        size_t step = at_hand(c, o, SIZE_MAX);
        if (step == 0)
            break;
        memcpy(&iov[n].iov_base, &o->p, sizeof o->p); /* iovec knows no const */
        iov[n].iov_len = step;
        asked += step;
        n++;
        mapped = mapped || o->still;
        if (step < o->n)
            break;
    }
    if (o && o->kind == NET_OUT_FILE && o->shared && n < IOV_BATCH) {
        size_t step = at_hand(c, o, READ_STEP), got = step ? read_shared(c, o, step) : 0;
        if (got) {
            iov[n++] = (struct iovec){c->w->scratch, got};
            asked += got;
        }
        if (got == o->n)
            o = o->next;
    }
    if (n == 0)
        return nothing_at_hand(c, out_why);
    int flags = MSG_NOSIGNAL | (o && !c->starved ? MSG_MORE : 0);
    ssize_t r;
    if (n == 1) {
        r = send(c->nf.fd, iov[0].iov_base, iov[0].iov_len, flags);
    } else {
        struct msghdr m = {.msg_iov = iov, .msg_iovlen = n};
        r = sendmsg(c->nf.fd, &m, flags);
    }
    if (r < 0)
        return failed(out_why);
    *out_n = (size_t)r;
    /* Less than asked for: the socket is full. Or a mapping ends sooner than its file did, which is said when nothing stands before it. */
    c->blocked = (size_t)r < asked && !mapped;
    return NET_IO_OK;
}

static enum net_io send_file(struct net_conn *c, size_t *out_n, enum err *out_why)
{
    struct net_out *o = c->out_head;
    off_t off = o->off;
    size_t step = at_hand(c, o, TURN_BYTES);
    ssize_t r = step && is_still(o) ? sendfile(c->nf.fd, o->fd, &off, step) : 0;
    if (r < 0)
        return failed(out_why);
    if (r == 0)
        return nothing_at_hand(c, out_why);
    *out_n = (size_t)r;
    return NET_IO_OK;
}

static enum net_io send_tls(struct net_conn *c, size_t *out_n, enum err *out_why)
{
    uint8_t record[TLS_RECORD];
    struct net_out *o = c->out_head;
    size_t n = 0;
    if (o->kind == NET_OUT_FILE) {
        n = at_hand(c, o, sizeof record);
        n = n ? read_file(o, record, n) : 0;
    } else if ((o->n >= sizeof record || !o->next) && is_still(o)) {
        enum net_io io = net_tls_write(c->tls, o->p, o->n < TLS_RECORD ? o->n : TLS_RECORD, out_n);
        if (io == NET_IO_ERROR || io == NET_IO_EOF)
            *out_why = ERR_DISCONNECTED;
        return io == NET_IO_EOF ? NET_IO_ERROR : io;
    } else {
        /* Small pieces share a record: each costs a header and an authentication tag. */
        for (; o && o->kind != NET_OUT_FILE && n < sizeof record && is_still(o); o = o->next) {
            size_t take = o->n < sizeof record - n ? o->n : sizeof record - n;
            memcpy(record + n, o->p, take);
            n += take;
        }
    }
    if (n == 0)
        return nothing_at_hand(c, out_why);
    enum net_io io = net_tls_write(c->tls, record, n, out_n);
    if (io == NET_IO_ERROR || io == NET_IO_EOF) {
        *out_why = ERR_DISCONNECTED;
        return NET_IO_ERROR;
    }
    return io;
}

enum net_io net_out__flush(struct net_conn *c, enum err *out_why)
{
    size_t turn = 0;
    c->starved = false;
    while (c->out_head && !c->blocked) {
        if (turn >= TURN_BYTES)
            return NET_IO_AGAIN;
        size_t n = 0;
        enum net_io io;
        if (c->tls)
            io = send_tls(c, &n, out_why);
        else if (by_reference(c->out_head))
            io = send_file(c, &n, out_why);
        else
            io = send_memory(c, &n, out_why);
        if (io == NET_IO_AGAIN) {
            c->blocked = !c->starved;
            return NET_IO_AGAIN;
        }
        if (io != NET_IO_OK)
            return io;
        sent(c, n);
        turn += n;
    }
    return c->out_head ? NET_IO_AGAIN : NET_IO_OK;
}
