/* The work on one job: the connection to gpuwmd, how far the job is, and what outlives the job. Only the main thread uses it. */
#ifndef GPUWM_LOADER_WORK_H
#define GPUWM_LOADER_WORK_H

#include "../client/lib/connection/connection.h"
#include "../proto/wire/part.h"

#include <stdbool.h>
#include <stdint.h>

struct plan_params;
struct prepare;
struct roots_service;

struct work {
	struct connection *connection;
	struct gpuwm_client *client; /* made around the connection, for publishing */
	const struct roots_service *service; /* the roots of this loader's service */
	/* Contexts and buffers, of the job or kept for the next one; NULL: none. They end after gpuwmd was told how the job ended,
	 * since that takes time. */
	struct prepare *prepare;
	struct plan_params *plan; /* the result of a dry run, owned; NULL: none */
	bool cancelled; /* set by the function that handles notifications */
	const char *phase;
	uint64_t done, total;
	uint64_t sent_ms; /* when progress was last sent */
	int damaged; /* of a verify that fails: the segment that differs; -1: none */
};

/* Begins a phase ("opening", "planning", "allocating", "starting the GPU", "copying", "checking",
 * "sealing", "comparing", "handing in", "mapping", "verifying", "reading"; of a source that is a peer's "asking the
 * peer", "taking") and tells gpuwmd. total: the bytes of the phase, or 0 if
 * nothing is counted. Returns 0. Fails with -ECANCELED, and with -ECONNRESET. */
int work_phase(struct work *work, const char *phase, uint64_t total);
/* Counts `bytes` more as done. It tells gpuwmd at most every WORK_TELL_MS, and looks at the
 * connection each time. It is a memory_progress_fn. Returns 0. Fails with -ECANCELED, and with
 * -ECONNRESET. */
int work_advance(uint64_t bytes, void *work);
/* Tells the operator one sentence about this job besides its progress, such as which path was taken
 * and why, or how fast a kernel was. The sentence is cut at TEXT_BYTES_MAX. gpuwmd keeps the first
 * JOB_NOTES_MAX of a job. If the connection is gone, the next work_phase or work_advance notices it. */
void work_note(struct work *work, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Fills *error for a code that work_phase or work_advance returned. */
int work_stopped(const struct work *work, int code, struct error *error);

#define WORK_TELL_MS 100 /* it moves a progress bar, and 10 messages a second cost nothing */

/* ---- parts that come in packets (files/hand_in.c) ----
 *
 * A part as it comes in a packet, and the checker's side of the socket that a publisher got. */

/* Waits for the publisher's one `hand_in`, and answers it. Returns 0 and sets *ret, whose
 * descriptors the caller closes. Fails with -ECANCELED if the publisher's socket ends or gpuwmd cancels, with
 * -ECONNRESET if gpuwmd goes, and with -EPROTO, -EINVAL or -EBADMSG if the packet is not a hand_in.
 * In the last case the publisher gets the same error. */
int hand_in_receive(int publisher, struct work *work, struct part *ret, struct error *error);
/* As part_read. Fails with -EBADMSG also if other descriptors came with the packet. */
int hand_in_take(struct fields *f, struct packet *packet, struct part *ret);

#endif
