/* --take-over in the supervisor: what the talk with another keeper means for the program and the store. */
#include "keeper.h"
#include "../base/clock.h"
#include "../service/log.h"

#include <signal.h>
#include <unistd.h>

/* ---- the old keeper ---- */

/* As PID 1 of a container the keeper stays: whoever runs the container would start it again, and that keeper would take the store
 * back, or be in the way of the new one. */
static void hand_over_done(struct keeper *k)
{
	log_info("%zu stored descriptors belong to the other keeper now", k->store.count);
	store_clear(&k->store);
	take_over_socket_close(&k->socket);
	k->phase = k->stop || getpid() != 1 ? PHASE_OVER : PHASE_IDLE;
	if (k->phase == PHASE_IDLE)
		log_info("gpuwm-keeper does nothing until it is told to end");
}

static void begin_handing_over(struct keeper *k);

static void on_hand_over(struct keeper *k, enum hand_over_result result)
{
	switch (result) {
	case HAND_OVER_GO_ON:
		break;
	case HAND_OVER_STOP:
		log_info("another keeper takes over: %s is ended first", k->name);
		if (k->child != 0)
			keeper_stop_child(k);
		else
			begin_handing_over(k);
		break;
	case HAND_OVER_FAILED:
		if (k->child != 0)
			k->upgrade = true; /* it is being ended: then it is started again at once */
		else if (k->stop)
			k->phase = PHASE_OVER;
		else
			keeper_start_anew(k);
		break;
	case HAND_OVER_DONE:
		hand_over_done(k);
		break;
	}
}

static void begin_handing_over(struct keeper *k)
{
	k->phase = PHASE_HANDING_OVER;
	k->deadline_ms = 0;
	on_hand_over(k, hand_over_begin(&k->hand_over, &k->store, &k->socket, clock_steady_ms()));
}

/* ---- the new keeper ---- */

/* The store is the old keeper's: nothing is let go that is not there. */
static void take_over_lost(struct keeper *k)
{
	k->exit_status = k->stop ? EXIT_SUCCESS : EXIT_FAILURE;
	if (k->child == 0) {
		k->phase = PHASE_OVER;
	} else {
		kill(k->child, SIGKILL);
		k->phase = PHASE_KILLED;
		k->deadline_ms = 0;
	}
}

static void on_take_over(struct keeper *k, enum take_over_result result)
{
	if (result == TAKE_OVER_LOST)
		take_over_lost(k);
	else if (result == TAKE_OVER_OURS && k->phase == PHASE_GIVING_BACK)
		keeper_start_anew(k);
}

void succession_adopted(struct keeper *k)
{
	if (!take_over_is_open(&k->take_over))
		return;
	/* A keeper that was told to stop would let everything go. The old one still has it. */
	if (k->stop)
		on_take_over(k, take_over_leave(&k->take_over, "this keeper was told to stop"));
	else
		on_take_over(k, take_over_taken(&k->take_over));
}

/* ---- both ---- */

bool succession_wants_end(const struct keeper *k)
{
	return k->hand_over.step == HAND_OVER_STOPPING || k->take_over.lost || take_over_is_open(&k->take_over);
}

void succession_on_end(struct keeper *k)
{
	if (k->hand_over.step == HAND_OVER_STOPPING) {
		begin_handing_over(k);
	} else if (k->take_over.lost) {
		take_over_lost(k);
	} else {
		k->phase = PHASE_GIVING_BACK;
		k->deadline_ms = 0;
		on_take_over(k, take_over_give_back(
					&k->take_over,
					"its program ended before it had adopted the store; its log says why"));
	}
}

/* While the program starts, the state may be half written: others wait until it is ready or has ended. */
static bool is_accepting(const struct keeper *k)
{
	return k->socket.listener >= 0 && k->hand_over.step == HAND_OVER_NONE &&
	       !take_over_is_open(&k->take_over) && k->phase != PHASE_STARTING && k->phase != PHASE_OVER;
}

void succession_watch(const struct keeper *k, struct pollfd ready[2])
{
	ready[0] = (struct pollfd){.fd = is_accepting(k) ? k->socket.listener : -1, .events = POLLIN};
	ready[1] = (struct pollfd){.fd = k->take_over.link.sock, .events = POLLIN};
	if (k->hand_over.step != HAND_OVER_NONE)
		ready[1] = (struct pollfd){k->hand_over.link.sock, hand_over_events(&k->hand_over), 0};
}

void succession_go_on(struct keeper *k, const struct pollfd ready[2])
{
	if (k->hand_over.step != HAND_OVER_NONE && ready[1].fd == k->hand_over.link.sock && ready[1].revents)
		on_hand_over(k, hand_over_go_on(&k->hand_over, &k->store));
	else if (take_over_is_open(&k->take_over) && ready[1].fd == k->take_over.link.sock && ready[1].revents)
		on_take_over(k, take_over_go_on(&k->take_over));
	if (ready[0].revents && is_accepting(k)) {
		int peer = take_over_socket_accept(&k->socket);

		if (peer >= 0)
			hand_over_accept(&k->hand_over, peer, clock_steady_ms());
	}
}

void succession_on_time(struct keeper *k, uint64_t now)
{
	if (k->hand_over.deadline_ms && k->hand_over.deadline_ms <= now)
		on_hand_over(k, hand_over_late(&k->hand_over));
}

int succession_begin(struct keeper *k)
{
	const struct options *options = k->options;

	hand_over_init(&k->hand_over, options->generation);
	link_open(&k->take_over.link, -1);
	k->socket = (struct take_over_socket){-1, -1};
	if (!options->take_over)
		return 0;
	return take_over_begin(&k->take_over, options->take_over, options->generation, &k->store, &k->socket);
}

/* The socket's file goes only with the keeper in charge. */
void succession_end(struct keeper *k)
{
	if (k->socket.listener >= 0 && !k->take_over.lost && !take_over_is_open(&k->take_over))
		unlink(k->options->take_over);
	take_over_end(&k->take_over);
	link_close(&k->hand_over.link);
	take_over_socket_close(&k->socket);
}
