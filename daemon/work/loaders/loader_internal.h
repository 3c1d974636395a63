/* The inside of loaders and their pool, for the files that make them up: loader.c is the life of
 * one process, loader_assign.c gives it a job, loader_spawn.c and loader_connect.c begin and end it, loader_pool.c decides
 * how many there are and ends those that hold copies, loader_turns.c which job is next, loader_warm*.c which of them keep their contexts,
 * and loaders.c lists them. */
#ifndef GPUWM_DAEMON_LOADER_INTERNAL_H
#define GPUWM_DAEMON_LOADER_INTERNAL_H

#include "loader.h"
#include "../work.h"

enum loader_state {
	LOADER_STARTING, /* has not said hello */
	LOADER_STANDBY,
	LOADER_WARMING, /* makes contexts, to keep them for a load */
	LOADER_WARM, /* keeps its contexts, and waits for a load; a checker: for a check */
	LOADER_BUSY, /* has a job */
	LOADER_HOLDING, /* its job is done, and it holds the copy that it made */
	LOADER_CANCELLING, /* was asked to end it */
	LOADER_LEAVING, /* its job ended: it exits by itself */
	LOADER_ORPHAN, /* its connection has ended, and its exit status will come */
	LOADER_KILLED,
	LOADER_FORGOTTEN, /* hangs in the kernel */
};

/* How loader processes come to be: as children, or behind a socket where a service starts one for each connection. */
struct loader_kind {
	/* Begins a process and sets *ret_sock, which is connected to it. On errors too, `close` closes the handles. */
	int (*begin)(struct loader *l, int *ret_sock, struct error *error);
	/* Kills the process. A loader also exits when its connection ends, which comes next (loader/watcher.c). */
	void (*kill)(struct loader *l);
	/* Closes the libuv handles of the process, each with loader_handle_closed. */
	void (*close)(struct loader *l);
	const char *log; /* where a process says why it died */
};
extern const struct loader_kind loader_spawned, loader_connected;

struct parcel;

struct kept {
	struct shared_charge *shared;
	struct kept *next;
};

#define READS_EVERY_REPLICA UINT32_MAX

struct loader {
	struct loader_pool *pool;
	struct loader *next;
	const struct loader_kind *kind;
	uv_process_t process; /* of a child */
	uv_poll_t death; /* watches the pidfd that a loader of a service handed in */
	int pidfd; /* -1: none */
	int pid; /* as it says itself, in its own namespace; 0: not yet */
	bool mourned; /* gpuwmd will learn of its end, besides the end of its connection */
	uv_timer_t timer;
	unsigned handles; /* of libuv, not closed yet */
	enum loader_state state;
	bool was_starting; /* it has not said hello */
	bool keeps; /* it was warming or warm once */
	bool outdated; /* it began before a GPU that was lost came back: its driver can't use that one */
	bool unbegun; /* it has a load or a check that it has not begun: another loader could still have the job */
	bool checks; /* it has checked memory of this user, and gets no memory of anybody else: */
	uid_t uid;
	bool by_operator; /* root in a container has the uid of root, and is no operator */
	uint64_t warm_since_ms; /* steady */
	uint64_t started_ms; /* steady */
	struct session *session;
	struct job *job;
	struct ipc_copy *copy; /* which it holds; NULL: none, or the copy has ended */
	struct version_id reads; /* the part that it verifies or shares, and may have mapped until it is gone */
	uint32_t reads_replica; /* or READS_EVERY_REPLICA */
	struct kept *kept;
};

/* When a user's check was last given a loader. */
struct turn {
	uid_t uid;
	uint64_t at; /* counts checks; 0: an empty entry */
};

/* Few users publish at the same time. A user that is forgotten is served like a new one. */
#define TURNS_KEPT 64

struct loader_pool {
	struct work *work;
	struct loader *first;
	uv_timer_t *retry, *idle, *warm; /* each closes on its own */
	uint64_t warm_at_ms; /* steady: contexts may be made without a load from then on */
	unsigned warm_failures; /* how many attempts to make contexts failed in a row */
	uint64_t retry_at_ms; /* steady */
	unsigned failures; /* how many starts failed in a row */
	struct error failure; /* of the last start that failed */
	bool started;
	bool turning; /* a turn runs: it begins no other one */
	uint64_t asked_ms; /* steady: the last report that was asked for */
	struct turn turns[TURNS_KEPT];
	uint64_t last_turn;
	void (*ready)(void *data);
	void *ready_data;
};

/* Starts one more process. Returns false if that failed; the pool then tries again later. */
bool loader_start(struct loader_pool *pool);
/* Ends a standby loader that is not needed any more. */
void loader_dismiss(struct loader *l);
/* Gives a standby loader its job. */
void loader_assign(struct loader *l, struct job *job);
/* Kills and frees a loader without telling anybody, because the pool ends. */
void loader_discard(struct loader *l);

/* Kills its process. Its job ends with this error, or its copy is lost. */
void loader_kill(struct loader *l, const struct error *error);

void loader_on_timer(uv_timer_t *timer);
/* ---- loaders.c ---- */

unsigned loader_pool_in_state(const struct loader_pool *pool, enum loader_state state);
/* Standby loaders that no job took; NULL: there is none. */
struct loader *loader_pool_spare(const struct loader_pool *pool);
/* Its publish_begin waits until contexts of other jobs are gone. */
bool loader_waits_for_room(const struct loader *l);
/* The next charge for a context, after this one (NULL: of all). */
const struct kept *loader_next_context(const struct loader *l, const struct kept *after);
/* Sends a notification that is complete but for its end, with the descriptors of `with`. */
void loader_notify(struct loader *l, struct message_writer *w, const struct parcel *with);
/* No context is made without a load for a while. */
void loader_pool_warm_later(struct loader_pool *pool);
/* It is gone, or could not make its contexts. */
void loader_warm_failed(struct loader *l, const struct error *error);

/* ---- loader_turns.c ---- */

/* Returns whether a loader may have a job now that is not an operator's. An operator's load does not wait for what publishers hand in:
 * of several loaders checks, verifies and moves of users never have the last one. */
bool turns_may_check(const struct loader_pool *pool);
/* One user's checks may occupy `publishes_per_uid` loaders at a time, and so may the user's moves. Returns true if those that run and
 * those that wait before this job are as many, so that the job has to wait. */
bool turns_share_is_used_up(const struct loader_pool *pool, const struct job *job);
/* Remembers that a job of this user has been given a loader: the turn of other users comes before the next. */
void turns_note(struct loader_pool *pool, uid_t uid);
/* Returns the job that gets the next loader, or NULL. Leaves out jobs that are crowded. */
struct job *turns_first(const struct loader_pool *pool);
/* Returns how many processes there may be now: `loaders`, and one more for a demotion while a load waits for room. The load keeps its
 * process meanwhile, and others may have all the rest. */
uint64_t turns_processes(const struct loader_pool *pool);
/* Returns whether a job could begin if there were a process for it, and no more may be started. */
bool turns_lack_process(const struct loader_pool *pool);

/* ---- loader_warm*.c ---- */

/* Gives jobs to loaders that have a context for them. */
void warm_assign(struct loader_pool *pool);
/* Returns whether an idle checker will be left for this check when its publisher hands in, so that the check needs no other
 * loader. */
bool warm_awaits(const struct loader_pool *pool, const struct job *job);
/* Ends those that may not keep their contexts any longer: somebody is short of memory or of a loader, the configuration
 * has changed, a GPU was lost. Has contexts made where they are always to be there. lacks_standby: fewer loaders stand by than
 * should, and no more may be started. */
void warm_turn(struct loader_pool *pool, bool lacks_standby);
/* The configuration may have changed. */
void warm_watch(struct loader_pool *pool);
/* Ends all of them; those that have a job keep nothing after it. */
void warm_renew(struct loader_pool *pool);
/* For the kinds: the process is gone. status: " (signal 9)", or "" where nobody knows. Frees it. */
void loader_gone(struct loader *l, const char *status);
void loader_handle_closed(uv_handle_t *handle);
/* In loader_connect.c. Watches the process that handed in this pidfd, which is taken over. Returns 0 or -errno. */
int loader_mourn(struct loader *l, int pidfd);

/* ---- loaders that keep their CUDA contexts: loader_warm.c; loader_assign.c gives them jobs ---- */

/* Returns whether the loader keeps contexts, or makes them in order to keep them, and has no job. */
bool warm_is(const struct loader *l);
/* Returns the first such loader from this one on, or NULL. l may be NULL. */
struct loader *warm_next(struct loader *l);
/* Returns the device of a kept context. */
struct device *kept_device(const struct kept *kept);
/* Returns whether a GPU on which the loader has a context is lost. */
bool warm_has_lost(const struct loader *l);
/* Returns for how many seconds the loader keeps its contexts: 0 is not at all, and KEEP_ALWAYS as long as nobody needs the room. */
uint64_t warm_keep_s(const struct loader *l);
/* The loader is warm from now on. */
void warm_stay(struct loader *l);
/* Returns the checker that has been idle for longest, or NULL. */
struct loader *warm_oldest_checker(const struct loader_pool *pool);

/* Returns whether loaders keep contexts for such jobs: loads that operators asked for, and moves of versions that operators made. A loader that has read what
 * another user made ends after its job. */
bool warm_is_for_loads(const struct job *job);
/* Returns whether the loader is idle and made for this job: it has contexts for loads, or it is the checker of the job's user and
 * has a context on the job's GPU. A job that an earlier loader did not begin suits none: what ended that loader may have ended
 * others that keep contexts of the same GPUs. */
bool warm_suits(const struct loader *l, const struct job *job);
/* Returns whether a publish waits for room on the device. */
bool warm_is_awaited(const struct work *work, const struct device *device);

/* Returns whether somebody else can't have a context or memory on a GPU because of a context that the loader keeps there. */
bool warm_is_crowding(const struct loader *l);

/* Has contexts made where they are always to be there. */
void warm_make_always(struct loader_pool *pool);

#endif
