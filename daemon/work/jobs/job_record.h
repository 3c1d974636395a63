/* The course of a job, for operators: its phases with their times, and notes. This file knows no loop. */
#ifndef GPUWM_DAEMON_JOB_RECORD_H
#define GPUWM_DAEMON_JOB_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../../../base/limits.h"

struct message_writer;

/* A load has about eight. A phase that begins again continues its first entry. */
#define JOB_PHASES_MAX 16
#define JOB_PHASE_NAME_BYTES 31 /* longer ones are cut */

struct job_phase {
	char name[JOB_PHASE_NAME_BYTES + 1];
	uint64_t ms;
	uint64_t bytes; /* how many were done in it; 0: the phase counts no bytes */
};

struct job_record {
	struct job_phase phases[JOB_PHASES_MAX]; /* by their beginnings */
	size_t phase_count, current;
	uint64_t since_ms; /* steady: when the current phase began last; 0: no phase runs */
	uint64_t done, total; /* bytes of the current phase since then */
	char *notes[JOB_NOTES_MAX]; /* owned */
	size_t note_count;
};

/* Begins or continues a phase. The phase before it is complete. If there are JOB_PHASES_MAX phases, the last one goes on. */
void job_record_phase(struct job_record *record, const char *phase, uint64_t now_ms);
/* Sets the bytes of the current phase. */
void job_record_bytes(struct job_record *record, uint64_t done, uint64_t total);
/* Ends the current phase. complete: all of its bytes are done, even if the loader reported fewer last. */
void job_record_end(struct job_record *record, bool complete, uint64_t now_ms);
/* Adds a note. Returns false if the job has this note already, if it has JOB_NOTES_MAX notes, or if there is no memory. */
bool job_record_note(struct job_record *record, const char *note);
void job_record_clear(struct job_record *record);

/* Writes `phases` for the method `jobs`. */
void job_record_put_phases(struct message_writer *w, const struct job_record *record, uint64_t now_ms);

#endif
