/* Calls into a file system that may not answer. The server of NFS or FUSE may be gone: then a call waits for ever, and gpuwmd's loop must
 * not wait with it. */
#ifndef GPUWM_DAEMON_FOLDER_ASK_H
#define GPUWM_DAEMON_FOLDER_ASK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* What is asked: the first member of a struct of the caller's, with all that the calls need and bring. */
struct folder_ask {
	const char *path; /* of the folder; in the caller's struct */
	void (*run)(struct folder_ask *ask); /* makes the calls, on a thread of its own */
	void (*drop)(
		struct folder_ask
			*ask); /* frees the struct; on either thread; asks no file system that run could ask */
	/* folder_ask.c's own: */
	pthread_cond_t changed;
	uint64_t steps;
	bool answered, left; /* left: nobody waits, and the thread drops it */
	struct folder_ask *prev, *next;
};

/* Runs ask->run in a thread, and waits as long as it makes a step in each wait_ms. Returns 0 if it has run; the struct is the caller's again.
 * Fails with -ETIMEDOUT if the file system does not answer, at once if an earlier ask about the folder, or several about other
 * folders, still wait; and with what kept the thread from beginning. Then the struct is dropped, by the thread if that still waits. */
int folder_ask(struct folder_ask *ask, int64_t wait_ms);
/* For run: the file system has answered once more. */
void folder_ask_step(struct folder_ask *ask);

#endif
