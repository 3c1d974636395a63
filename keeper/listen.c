/* What the program says: the keeper checks its notifications and acts on them. */
#include "keeper.h"
#include "../base/clock.h"
#include "../service/log.h"
#include "../service/manager.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static void refuse_fd(struct keeper *k, int r, const char *name)
{
	store_answer_refuse(&k->answer, name, r);
	if (r == -ENOSPC)
		keeper_complain(k, COMPLAINT_STORE,
				"the store is full: %zu descriptors, as --store-max says; %s is not kept",
				k->store.max, name);
	else if (r == -E2BIG)
		keeper_complain(
			k, COMPLAINT_STORE,
			"the store is full: all names are %zu bytes, and an environment variable takes no "
			"more; %s is not kept",
			k->store.name_bytes, name);
	else if (r == -EMFILE)
		keeper_complain(k, COMPLAINT_STORE, "%s is not kept: raise RLIMIT_NOFILE (ulimit -n)", name);
	else if (r == -EEXIST)
		keeper_complain(k, COMPLAINT_STORE,
				"%s is not kept: the store has the same open file under another name", name);
	else
		keeper_complain(k, COMPLAINT_STORE, "%s is not kept: %s", name, strerror(-r));
}

/* Removing comes first, as in systemd: so a message with both replaces a descriptor. */
static void do_store(struct keeper *k, struct inbox_message *message, const struct notification *n)
{
	const char *name = n->name_given ? n->name : FD_NAME_DEFAULT;

	if (n->name_given && !n->name_valid) {
		keeper_complain(
			k, COMPLAINT_STORE,
			"%s said FDNAME= with a name that is none (1 to 255 ASCII characters without ':'): "
			"nothing is stored or removed",
			k->name);
		return;
	}
	if (n->remove && n->name_given)
		store_remove(&k->store, n->name);
	for (size_t i = 0; n->store && i < message->fd_count; i++) {
		int r = store_add(&k->store, message->fds[i], name);

		message->fds[i] = -1;
		if (r < 0)
			refuse_fd(k, r, name);
	}
}

static void become_ready(struct keeper *k)
{
	k->phase = PHASE_READY;
	k->ready_since_ms = clock_steady_ms();
	k->was_ready = true;
	k->deadline_ms = k->options->watchdog_ms ? k->ready_since_ms + k->options->watchdog_ms : 0;
	log_info("%s is ready", k->name);
	keeper_tell_ready(k);
	ready_file_set(k->options->ready_file, true);
	if (k->reload)
		kill(k->child, SIGHUP);
	k->reload = false;
}

static void do_life(struct keeper *k, const struct notification *n)
{
	uint64_t now = clock_steady_ms();

	/* A program that does not say that it has adopted the store serves when it is ready. */
	if (n->adopted || n->ready)
		succession_adopted(k);
	if (n->ready && k->phase == PHASE_STARTING)
		become_ready(k);
	if (n->watchdog && k->phase == PHASE_READY && k->options->watchdog_ms)
		k->deadline_ms = now + k->options->watchdog_ms;
	if (n->watchdog_trigger && (k->phase == PHASE_READY || k->phase == PHASE_STARTING))
		keeper_abort(k, "says that it is in a bad state (WATCHDOG=trigger)");
	if (n->stopping && (k->phase == PHASE_READY || k->phase == PHASE_STARTING)) {
		k->phase = PHASE_STOPPING;
		k->deadline_ms = now + k->options->stop_ms;
	}
	/* If there is no deadline, there is nothing to extend. */
	if (n->extend_us && (k->phase == PHASE_STARTING || k->phase == PHASE_STOPPING) && k->deadline_ms &&
	    now + n->extend_us / 1000 > k->deadline_ms)
		k->deadline_ms = now + n->extend_us / 1000;
}

static void do_message(struct keeper *k, struct inbox_message *message)
{
	char status[NOTIFY_BYTES_MAX + 1];
	struct notification n;

	if (k->child == 0 || message->sender != k->child) {
		keeper_complain(k, COMPLAINT_FOREIGN,
				"a notification of process %d is dropped: only %s's own (process %d) count",
				(int)message->sender, k->name, (int)k->child);
		return;
	}
	if (message->fds_cut) {
		/* If the descriptor of a barrier is lost, the keeper can't answer that barrier, and the program
		 * finds out by itself. */
		if (!message->text_cut && notify_parse(message->text, message->bytes, &n) == 0 && n.store)
			store_answer_refuse(&k->answer, n.name_given ? n.name : FD_NAME_DEFAULT, -EMFILE);
		keeper_complain(k, COMPLAINT_DAMAGED,
				"descriptors that %s sent are lost: raise RLIMIT_NOFILE (ulimit -n)", k->name);
		return;
	}
	if (message->text_cut || notify_parse(message->text, message->bytes, &n) < 0) {
		keeper_complain(k, COMPLAINT_DAMAGED,
				"a notification of %s is dropped: longer than %d bytes, or a zero byte in it",
				k->name, NOTIFY_BYTES_MAX);
		return;
	}
	if (n.main_pid)
		keeper_complain(
			k, COMPLAINT_MAIN_PID,
			"%s said MAINPID=, which gpuwm-keeper does not follow: it watches what it started",
			k->name);
	if (n.status) {
		/* If the manager does not take this, the text is dropped: the next status will tell it. */
		snprintf(status, sizeof(status), "STATUS=%.*s", (int)n.status_bytes, n.status);
		manager_tell(status);
	}
	do_store(k, message, &n);
	do_life(k, &n);
	if (n.barrier && message->fd_count > 0)
		store_answer_send(&k->answer, message->fds[0]);
}

void keeper_listen(struct keeper *k)
{
	int r = 1;

	for (unsigned i = 0; i < TURN_MESSAGES_MAX && (r = inbox_receive(&k->inbox, &k->message)) > 0; i++) {
		do_message(k, &k->message);
		/* This also answers BARRIER=1 by closing its descriptor: everything before it is
		 * done. */
		inbox_message_clear(&k->message);
	}
	if (r < 0)
		keeper_complain(k, COMPLAINT_DAMAGED, "a notification can't be received: %s", strerror(-r));
}
