/* What an operator is told of a job's course: its phases with their times, and notes. Knows no loop. */
#ifndef GPUWM_DAEMON_JOB_RECORD_H
#define GPUWM_DAEMON_JOB_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct message_writer;

/* A load has about eight, and a phase that comes again counts with its first time. */
#define JOB_PHASES_MAX 16
/* One sentence each: which path was taken, and what was not to be had. */
#define JOB_NOTES_MAX 16
#define JOB_PHASE_NAME_BYTES 31 /* longer ones are cut */

struct job_phase {
	char name[JOB_PHASE_NAME_BYTES + 1];
	uint64_t ms;
	uint64_t bytes; /* done in it; 0: it counts none */
};

struct job_record {
	struct job_phase phases[JOB_PHASES_MAX]; /* by their beginnings */
	size_t phase_count, current;
	uint64_t since_ms; /* steady: the current one's last beginning; 0: none runs */
	uint64_t done, total; /* bytes of the current one since then */
	char *notes[JOB_NOTES_MAX]; /* owned */
	size_t note_count;
};

/* A phase begins or goes on, and the one before is complete. After JOB_PHASES_MAX of them the last one
 * goes on. */
void job_record_phase(struct job_record *record, const char *phase, uint64_t now_ms);
/* Bytes of the current one. */
void job_record_bytes(struct job_record *record, uint64_t done, uint64_t total);
/* No phase runs any more. complete: all of the last one's bytes are done, whatever was told last. */
void job_record_end(struct job_record *record, bool complete, uint64_t now_ms);
/* False: this one is known, there are JOB_NOTES_MAX of them, or memory is short. */
bool job_record_note(struct job_record *record, const char *note);
void job_record_clear(struct job_record *record);

/* `phases` and `notes` of `jobs`. */
void job_record_put(struct message_writer *w, const struct job_record *record, uint64_t now_ms);

#endif
