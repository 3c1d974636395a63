/* What one daemon has: the loop, the ledger, the connections. Everything runs
 * on the loop's thread; only closing descriptors goes to the thread pool. */
#ifndef GPUWM_DAEMON_SERVER_H
#define GPUWM_DAEMON_SERVER_H

#include "../proto/message.h"
#include "../proto/packet.h"
#include "config/config.h"
#include "ledger/ledger.h"
#include "work/job.h"
#include "clients/remedy.h"
#include "clients/waiter.h"

#include <uv.h>

#define LISTENERS 2
#define SIGNALS 3

struct session;
struct loader_pool;
struct fair;
struct audience;
struct crowded;
struct discard;
struct complaints;
struct pace;
struct unread;
struct waiter_name;
struct listener;
struct inherited;
struct mourning;
struct revoked_table;
struct keeping;
struct notify;
struct freeing;
struct scrub;
struct silence;

struct server {
	struct config *config;
	uv_loop_t loop;
	struct version_id instance;
	uint64_t started_ms; /* steady */
	gid_t publish_group, observe_group;
	bool has_publish_group, has_observe_group;
	uint64_t rules_generation; /* how often rules were taken into force, from 1 */
	uint64_t roles_generation; /* how often gpuwmd looked up the groups that give roles, from 1 */

	struct ledger ledger;
	struct keeping *keeping; /* what a restart finds */
	struct freeing *freeing; /* versions that are to go */
	bool unfreed; /* freeing a version failed for lack of memory; gpuwmd tries again before the loop sleeps */
	struct notify *notify;
	uint64_t events_told; /* the last one that subscribers were woken for */
	struct audience *audiences; /* a list */
	struct job_table jobs;
	struct waiter *waiters[WAIT_KINDS], **waiters_end[WAIT_KINDS]; /* oldest first */
	struct waiter_name *waiter_names; /* by what they wait for */
	uint64_t waiting;

	struct session *sessions;
	struct session *ended_sessions; /* goodbye is due */
	uint64_t session_count; /* without loaders */
	uint64_t last_session;
	uint64_t requests, refused;

	struct loader_pool *loaders;
	struct scrub *scrub;
	struct fair *fair; /* the loop's time, by user */
	struct crowded *crowded;
	struct discard *discard;
	struct silence *silence; /* of publishers */
	struct unread *unread;
	struct complaints *complaints;
	struct pace *connects; /* new connections, by user */
	struct mourning *mourning; /* dead publishers whose processes are not gone */
	struct revoked_table *revoked; /* leases that were revoked, as far as they may still be mapped */
	struct listener *listeners[LISTENERS];
	uv_work_t first_work; /* threads.h */
	struct operators_socket operators;
	struct roots *roots;
	uv_prepare_t settle;
	uv_idle_t serving_soon; /* these two: serving.h */
	uv_check_t serving;
	uv_timer_t stop_timer, claims_timer, force_timer, failed_timer;
	uint64_t claims_until_ms; /* steady: the end of the grace time of claims; 0: it is over, or never was */
	uint64_t claims_saved; /* claim_changes of what was saved last */
	uv_signal_t signals[SIGNALS];
	bool turn_due; /* gpuwmd gives loaders to jobs, and starts loaders, before the loop sleeps */
	bool losses_due; /* a device was lost or is back, so losses_settle has work to do */
	bool standbys_stale; /* the loaders that stand by began before a device came back */
	bool room_came; /* memory was given back: who waits for room looks before the loop sleeps */
	bool draining; /* no new leases, publishes, loads */
	bool drained; /* an operator let everything go: what still becomes ready is retired */
	bool stopping;
	struct error failed; /* why gpuwmd ends; code 0: it goes on */

	struct message_memory answer; /* for answers up to a packet's size, so that they need no memory later */
	char answer_data[PACKET_BYTES_MAX];
	struct packet packet; /* one for all sessions */
	uint8_t packet_data[PACKET_BYTES_MAX + 1];
};

/* Everything but listeners and loaders; *config stays the caller's, and is changed by a reload. */
int server_new(struct config *config, struct server **ret_server, struct error *error);
/* Ends what is left; waits at most STOP_DRAIN_MS for descriptors that are being closed. Not NULL: some thread is
 * still at it, or waits for the service manager. The server is left to the kernel then, and the process
 * ends with _exit: libuv makes exit wait for its threads. */
struct server *server_free(struct server *server);

/* Sockets, what a restart left (left is taken), signals, the first loader: then the loop until a signal or
 * server_stop. 0, or why gpuwmd could not start or go on. */
int server_run(struct server *server, struct inherited *left, struct error *error);

/* Leaves the loop at once. server_run then returns this error. */
void server_fail(struct server *server, const struct error *error);
/* SIGTERM: refuses what waits, lets replies drain, and leaves the loop. */
void server_stop(struct server *server);
/* What a gpuwmd that stops says to whatever comes or waits: -ECONNRESET. */
int server_refuse_stopping(struct error *error);
/* drain, and the first half of server_stop: no new leases, publishes, loads. */
void server_begin_draining(struct server *server, const struct error *why);

/* Before the loop sleeps: goodbyes that are due, then events. Also for tests,
 * which turn the loop themselves. */
void server_settle(struct server *server);

#endif
