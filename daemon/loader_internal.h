/* The inside of loaders and their pool, for the two files that make them up:
 * loader.c is the life of one process, loader_pool.c decides how many there are. */
#ifndef GPUWM_DAEMON_LOADER_INTERNAL_H
#define GPUWM_DAEMON_LOADER_INTERNAL_H

#include "loader.h"
#include "server.h"

enum loader_state {
	LOADER_STARTING, /* has not said hello */
	LOADER_STANDBY,
	LOADER_BUSY, /* has a job */
	LOADER_CANCELLING, /* was asked to end it */
	LOADER_LEAVING, /* its job ended: it exits by itself */
	LOADER_ORPHAN, /* its connection ended: the exit status is awaited */
	LOADER_KILLED,
	LOADER_FORGOTTEN, /* hangs in the kernel */
};

struct kept {
	struct grant *grant;
	struct kept *next;
};

struct loader {
	struct loader_pool *pool;
	struct loader *next;
	uv_process_t process;
	uv_timer_t timer;
	unsigned handles;
	enum loader_state state;
	bool was_starting; /* it died before its hello */
	uint64_t started_ms; /* steady */
	struct session *session;
	struct job *job;
	struct kept *kept;
};

struct loader_pool {
	struct server *server;
	struct loader *first;
	uv_timer_t *retry; /* closes on its own */
	uint64_t retry_at_ms; /* steady */
	unsigned failures; /* at start, in a row */
	struct error failure; /* the last one */
	bool started;
	uint64_t asked_ms; /* steady: the last report that was asked for */
	void (*ready)(struct server *server);
};

/* Starts one more process; false: it failed, and the pool tries later. */
bool loader_start(struct loader_pool *pool);
/* Gives a standby loader its job. */
void loader_assign(struct loader *l, struct job *job);
/* Sends a notification that is complete but for its end; fd -1: none, else it is closed. */
void loader_notify(struct loader *l, struct message_writer *w, int fd);
/* Kills and frees, without a word to anybody: the pool ends. */
void loader_discard(struct loader *l);

#endif
