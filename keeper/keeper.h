/* The supervisor: one program, its store, and a loop of poll(2) over signals and notifications. */
#ifndef GPUWM_KEEPER_KEEPER_H
#define GPUWM_KEEPER_KEEPER_H

#include "notify.h"
#include "options.h"
#include "store.h"
#include "take_over.h"
#include "../service/manager.h"

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

/* The time that the program has after SIGABRT. A core of gpuwmd has a few MiB, since gpuwmd maps no
 * weights. */
#define ABORT_MS 5000
/* If the keeper sees the deadline of a watchdog or start expire this much too late, the keeper did
 * not run either (a paused container, a suspended machine). Then the program gets a fresh
 * interval. */
#define LATE_MS 1000
/* If the queue of a manager above the keeper is full and does not take READY=1, the keeper tells it
 * again after this time. */
#define READY_RETRY_MS 1000
/* Notifications in one turn. It is more than any net.unix.max_dgram_qlen in use, so the keeper
 * reads all that a dead program said before it acts on its death. It is a limit nevertheless, so
 * that no flood keeps the keeper from signals. */
#define TURN_MESSAGES_MAX 4096

enum phase {
	PHASE_WAITING, /* nothing runs; the deadline is the next start */
	/* The program runs and has not said READY=1. The deadline is the start's, if there is one. */
	PHASE_STARTING,
	PHASE_READY, /* the deadline is the watchdog's, if there is one */
	/* The keeper sent SIGTERM, or the program said STOPPING=1. The deadline is SIGKILL's. */
	PHASE_STOPPING,
	/* The keeper sent SIGABRT, for the watchdog or the start's deadline. The deadline is SIGKILL's. */
	PHASE_ABORTING,
	PHASE_KILLED, /* the keeper sent SIGKILL */
	PHASE_HANDING_OVER, /* nothing runs; the other keeper has the store and has not taken it */
	PHASE_GIVING_BACK, /* nothing runs; the other keeper is to take its store back */
	PHASE_IDLE, /* nothing runs; the other keeper has taken the store */
	PHASE_OVER, /* nothing runs and nothing will; keeper_run returns */
};

/* Limits lines that others can cause as often as they like: one line of a kind in ten seconds. */
struct log_limit {
	uint64_t next_ms; /* no line before this time */
	unsigned left_out;
};
/* Returns whether a line may be written now. Then *ret_left_out is how many lines were left out
 * since the last one. */
int log_allowed(struct log_limit *limit, uint64_t now_ms, unsigned *ret_left_out);

enum complaint { COMPLAINT_FOREIGN, COMPLAINT_DAMAGED, COMPLAINT_STORE, COMPLAINT_MAIN_PID, COMPLAINTS };

struct keeper {
	const struct options *options;
	const char *name; /* the program's name in the log */
	char *const *environment;
	struct store store;
	struct inbox inbox;
	struct take_over_socket socket; /* of --take-over */
	struct take_over take_over; /* from the keeper before */
	struct hand_over hand_over; /* to the next keeper */
	int signals; /* a signalfd */
	pid_t child; /* 0: none */
	enum phase phase;
	uint64_t deadline_ms; /* 0: none */
	uint64_t ready_since_ms; /* when this run became ready; 0: not yet */
	unsigned starts;
	bool was_ready; /* this run or an earlier one was ready */
	bool stop; /* the keeper was told to stop */
	bool upgrade; /* start the program again as soon as it ends */
	bool reload; /* send SIGHUP when the program is ready */
	bool ready_due; /* READY=1 is still to be told to the manager above, at ready_retry_ms */
	uint64_t ready_retry_ms;
	struct restart restart;
	int exit_status;
	struct store_answer answer; /* the answer to the next barrier */
	struct log_limit limits[COMPLAINTS];
	struct inbox_message message;
};

/* Runs until it is told to stop, or until the very first start shows that the command line is
 * wrong. Returns the keeper's exit status. `signals` is a signalfd for the signals that main
 * blocked. */
int keeper_run(const struct options *options, char *const *environment, int signals);

/* ---- between the files of the supervisor ---- */

/* Logs a warning, at most once in ten seconds for each kind. */
void keeper_complain(struct keeper *k, enum complaint kind, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* Tells the manager above that the keeper is ready. Until the manager takes that, the loop tries
 * again. */
void keeper_tell_ready(struct keeper *k);
/* listen.c: reads all notifications that the program has sent. */
void keeper_listen(struct keeper *k);
/* Sends SIGTERM. */
void keeper_stop_child(struct keeper *k);
/* Starts the program at once; if the keeper was told to stop, it ends. */
void keeper_start_anew(struct keeper *k);

/* succession.c. Takes over from another keeper, if there is one. Fails with -errno, and logs why. */
int succession_begin(struct keeper *k);
void succession_end(struct keeper *k);
/* Sets what the loop waits for, and does what came of it. */
void succession_watch(const struct keeper *k, struct pollfd ready[2]);
void succession_go_on(struct keeper *k, const struct pollfd ready[2]);
void succession_on_time(struct keeper *k, uint64_t now);
/* The program has adopted the store. */
void succession_adopted(struct keeper *k);
/* Whether the program's end concerns another keeper; then succession_on_end says what comes next. */
bool succession_wants_end(const struct keeper *k);
void succession_on_end(struct keeper *k);

/* Sends SIGABRT, because the program does not say that it is ready, or that it lives. */
void keeper_abort(struct keeper *k, const char *why);

/* The file of --ready-file, by which a container's probe sees whether the keeper's own program is ready. The sockets would not
 * tell: while a new keeper takes over, the old keeper's program may serve them. Makes the file or removes it. If that fails,
 * the log says why. path NULL: nothing is done. */
void ready_file_set(const char *path, bool ready);

#endif
