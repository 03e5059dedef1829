#include "svc/internal.h"

const char *svc__advice(enum err e)
{
    switch ((int)e) {
    case ERR_NO_SPACE:
        return "the disk is full; make room, or choose another directory with --data";
    case ERR_PERMISSION:
        return "this user may not write there, or the file system is read-only; see who owns it, or choose "
               "another directory with --data";
    case ERR_NOT_FOUND:
        return "the directory above it does not exist; create that first";
    case ERR_LOCKED:
        return "another process has it open; stop that one, or choose another directory with --data";
    case ERR_VERSION:
        return "another version of ron wrote it; start that one, or restore a backup "
               "(docs/ops/upgrades.md)";
    case ERR_CORRUPT:
        return "a file in it is damaged; change nothing and go by docs/ops/safe-mode.md";
    case ERR_IO:
        return "the disk answers with errors; see the system's log";
    default:
        return err_title(e);
    }
}
