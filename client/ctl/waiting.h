/* What `wait` waits for, and whether it has come: judged by gpuwmd's list. */
#ifndef GPUWM_CTL_WAITING_H
#define GPUWM_CTL_WAITING_H

#include "answer.h"

#include "../../proto/names.h"

#define WHY_TEXT (2 * TEXT_BYTES_MAX + 200)

enum verdict {
	STILL_WAITING,
	HAS_COME,
	CANNOT_COME,
	CANNOT_TELL, /* whether it comes: gpuwmd sends no events about it */
};

struct waiting {
	struct gpuwm_client *client;
	const struct arguments *arguments;
	const char *ref;
	bool freed; /* --for freed */
	char id[VERSION_ID_TEXT]; /* of --for freed: what REF named when the command began; of ready: the one that is ready */
	bool look; /* an event came after which the answer may be another one */
	char state[WHY_TEXT], remedy[WHY_TEXT]; /* how it stands, and what to do about it */
};

/* Whether a job's state is one of its ends. */
bool job_is_over(const json_t *job);
/* Looks how it stands, and sets waiting->id, state and remedy. EXIT_DONE with *ret_verdict, or an exit code after printing
 * why. */
int waiting_look(struct waiting *w, enum verdict *ret_verdict);

#endif
