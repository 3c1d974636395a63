/* What gpuwmd must know to bring a version back from its files. */
#ifndef GPUWM_DAEMON_DESCRIPTION_H
#define GPUWM_DAEMON_DESCRIPTION_H

#include <stdint.h>

/* What a version can be loaded from again, with every byte of its memory. */
struct description {
	char *source; /* in the form that a load takes */
	char *cut; /* the text of the plan; NULL: it is not cut */
	uint64_t ranks; /* how many ranks the cut makes; 0: it is not cut */
};
/* Copies a description. Returns NULL if there is no memory. */
struct description *description_new(const char *source, const char *cut, uint64_t ranks);
/* Frees the description. NULL is fine. Returns NULL. */
struct description *description_free(struct description *description);

#endif
