/* What the files of the loop share. */
#ifndef RON_NET_LOOP_INTERNAL_H
#define RON_NET_LOOP_INTERNAL_H

#include "net/loop.h"

bool net_loop__stopped(const struct net_loop *loop);

#endif
