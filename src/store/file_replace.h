/*
 * Whole small files: read at once, replaced at once.
 *
 * A replacement is temp file, write, fdatasync, rename, fsync of the directory: after a power cut at any
 * point the name holds the old or the new contents, never a mixture, and after ERR_OK the new ones.
 *
 * Ownership   Contents and paths are borrowed for the call; what is read goes into the caller's buffer.
 * Threads     Any; but one replacement of a name at a time, because its temp file has one name.
 */
#ifndef RON_STORE_FILE_REPLACE_H
#define RON_STORE_FILE_REPLACE_H

#include "base/buf.h"
#include "base/bytes.h"
#include "store/disk.h"

/* The temp file is path + ".tmp"; one left over from a crash is overwritten. */
NODISCARD enum err store_file_replace(struct store_disk *d, const char *path,
                                      struct bytes contents) RT_BLOCKS;

/* Appends the contents to out; ERR_TOO_LARGE past the buffer's maximum, ERR_NOT_FOUND. */
NODISCARD enum err store_file_slurp(struct store_disk *d, const char *path, struct buf *out) RT_BLOCKS;

/* Removes a name durably; one that is not there is fine. */
NODISCARD enum err store_file_remove(struct store_disk *d, const char *path) RT_BLOCKS;

/* The directory part of path ("." when it has none). False when it does not fit. */
bool store_path_dir(const char *path, char out[STORE_PATH_MAX]);
/* dir/name; aborts when it does not fit: our own paths are short. */
void store_path_join(char out[STORE_PATH_MAX], const char *dir, const char *name);
/* For somebody who stands elsewhere: with the working directory before it. As it is when that does not fit. */
void store_path_absolute(char out[STORE_PATH_MAX], const char *path);

#endif
