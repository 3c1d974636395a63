/* The supervisor: one program, its store, a loop of poll(2) over signals and notifications. */
#ifndef GPUWM_KEEPER_KEEPER_H
#define GPUWM_KEEPER_KEEPER_H

#include "inbox.h"
#include "log.h"
#include "options.h"
#include "store.h"
#include "../service/store_answer.h"

/* After SIGABRT: a core of gpuwmd is a few MiB, since it maps no weights. */
#define ABORT_MS 5000
/* A watchdog or start that we see expire this much too late has counted time in which we did not run
 * either (a paused container, a suspended machine): the program gets a fresh interval. */
#define LATE_MS 1000
/* READY=1 that a manager above us does not take, its queue being full, is told again after this. */
#define READY_RETRY_MS 1000
/* Notifications in one turn: more than any net.unix.max_dgram_qlen in use, so that all that a dead
 * program said is read before its death counts, and still no flood keeps us from signals. */
#define TURN_MESSAGES_MAX 4096

enum phase {
	PHASE_WAITING, /* nothing runs; the deadline is the next start */
	PHASE_STARTING, /* it runs and has not said READY=1; the deadline is the start's, if there is one */
	PHASE_READY, /* the deadline is the watchdog's, if there is one */
	PHASE_STOPPING, /* SIGTERM was sent, or it said STOPPING=1; the deadline is SIGKILL's */
	PHASE_ABORTING, /* SIGABRT was sent, by the watchdog or the start's deadline; the deadline is SIGKILL's */
	PHASE_KILLED, /* SIGKILL was sent */
	PHASE_OVER, /* nothing runs, nothing will: keeper_run returns */
};

enum complaint { COMPLAINT_FOREIGN, COMPLAINT_DAMAGED, COMPLAINT_STORE, COMPLAINT_MAIN_PID, COMPLAINTS };

struct keeper {
	const struct options *options;
	const char *name; /* of the program, in the log */
	char *const *environment;
	struct store store;
	struct inbox inbox;
	int signals; /* a signalfd */
	pid_t child; /* 0: none */
	enum phase phase;
	uint64_t deadline_ms; /* 0: none */
	uint64_t ready_since_ms; /* of this run; 0: not ready yet */
	unsigned starts;
	bool was_ready; /* in any run */
	bool stop; /* we were told to */
	bool upgrade; /* when it ends, start it at once */
	bool reload; /* SIGHUP is due when it is ready */
	bool ready_due; /* READY=1 is to be told to the manager above, at ready_retry_ms */
	uint64_t ready_retry_ms;
	struct restart restart;
	int exit_status;
	struct store_answer answer; /* at the next barrier */
	struct log_limit limits[COMPLAINTS];
	struct inbox_message message;
};

/* Runs until it is told to stop, or the very first start shows that the command line is wrong. Returns
 * our exit status. `signals` is a signalfd for those that main blocked. */
int keeper_run(const struct options *options, char *const *environment, int signals);

/* ---- between the files of the supervisor ---- */

uint64_t clock_ms(void);
/* A warning that is written once in ten seconds of its kind. */
void keeper_complain(struct keeper *k, enum complaint kind, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* Tells the manager above that we are ready; until it takes that, the loop tries again. */
void keeper_tell_ready(struct keeper *k);
/* listen.c: reads what the program says, until there is nothing more. */
void keeper_listen(struct keeper *k);
/* SIGABRT, since it does not say that it is ready, or lives. */
void keeper_abort(struct keeper *k, const char *why);

#endif
