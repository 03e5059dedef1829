/* The VFS under an MBTiles handle: one read-only descriptor, no locks, no other file. */
#ifndef RON_EDGE_MBDB_VFS_H
#define RON_EDGE_MBDB_VFS_H

#include <stdbool.h>

struct sqlite3;

/* What one handle's file may do; the handle owns it and it outlives the connection. */
struct edge_mbdb_file {
    int fd;
    bool waits;
    bool would_wait; /* set by a read that was refused because of !waits */
};

/* Opens a connection whose main database is f->fd. SQLite's result code. */
int edge_mbdb_vfs_open(struct edge_mbdb_file *f, struct sqlite3 **out);

#endif
