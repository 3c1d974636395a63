/* What gpuwmd must know to bring a version back from its files, or from other nodes. */
#ifndef GPUWM_DAEMON_DESCRIPTION_H
#define GPUWM_DAEMON_DESCRIPTION_H

#include "../../proto/wire/messages_jobs.h"

/* What a version can be loaded from again, with every byte of its memory. */
struct description {
	const char *source; /* in the form that a load takes */
	struct load_choice choice;
	const char *fingerprint; /* of a version that was taken from a node; NULL: the source are files */
	bool by_publisher; /* a publisher has described it, who must learn nothing of files of others */
};
extern const struct record description_record;
/* Copies a description. Returns NULL if there is no memory. */
struct description *description_new(const struct description *description);
/* Returns whether the version can come back from files. What other nodes have may go at any time, so gpuwmd keeps the memory of a version
 * that only they have. NULL is fine. */
bool description_has_files(const struct description *description);
/* Frees the description. NULL is fine. Returns NULL. */
struct description *description_free(struct description *description);

#endif
