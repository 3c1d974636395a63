/* uthash, with out of memory as an error instead of an exit: an element whose
 * handle has no table (hh.tbl) after HASH_ADD was not added. */
#ifndef GPUWM_DAEMON_HASH_H
#define GPUWM_DAEMON_HASH_H

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#endif
