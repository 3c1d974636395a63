/* The list of all servers, as JSON, which the hook gets. */
#ifndef GPUWM_FOLLOW_LIST_H
#define GPUWM_FOLLOW_LIST_H

#include "route.h"

/* Returns a malloced text, whose form gpuwm-follow(8) has; NULL: out of memory. The same servers give the same text. */
char *list_text(const struct route *routes, size_t count);

#endif
