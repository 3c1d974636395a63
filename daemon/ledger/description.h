/* What gpuwmd must know to bring a version back from its files. */
#ifndef GPUWM_DAEMON_DESCRIPTION_H
#define GPUWM_DAEMON_DESCRIPTION_H

#include "../../proto/wire/messages_jobs.h"

/* What a version can be loaded from again, with every byte of its memory. */
struct description {
	const char *source; /* in the form that a load takes */
	struct load_choice choice;
};
extern const struct record description_record;
/* Copies a description. Returns NULL if there is no memory. */
struct description *description_new(const struct description *description);
/* Frees the description. NULL is fine. Returns NULL. */
struct description *description_free(struct description *description);

#endif
