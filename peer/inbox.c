#include "exchange.h"

#include "../base/limits.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct inbox {
	struct link *link;
	pthread_t thread;
	int event; /* can be read while there is something to take */
	pthread_mutex_t lock; /* guards what follows */
	pthread_cond_t taken;
	struct peer_message messages[INBOX_MESSAGES_MAX]; /* a ring */
	unsigned first, count;
	bool closing;
	struct error end; /* why nothing comes any more; code 0: the connection goes on */
};

static void signal_event(struct inbox *inbox)
{
	const uint64_t one = 1;

	while (write(inbox->event, &one, sizeof(one)) < 0) {
		if (errno != EINTR)
			abort(); /* the counter can't overflow, and the descriptor is ours */
	}
}

/* Puts the message behind the others, once there is room. Returns false if the inbox is being closed. */
static bool inbox_put(struct inbox *inbox, struct peer_message *message)
{
	bool goes_on;

	pthread_mutex_lock(&inbox->lock);
	while (inbox->count == INBOX_MESSAGES_MAX && !inbox->closing)
		pthread_cond_wait(&inbox->taken, &inbox->lock);
	goes_on = !inbox->closing;
	if (goes_on) {
		inbox->messages[(inbox->first + inbox->count++) % INBOX_MESSAGES_MAX] = *message;
		signal_event(inbox);
	}
	pthread_mutex_unlock(&inbox->lock);
	return goes_on;
}

static void *inbox_receive(void *user_data)
{
	struct inbox *inbox = user_data;
	struct peer_message message;
	struct error error = {0};
	bool goes_on = true;

	while (goes_on &&
	       peer_receive(inbox->link, PEER_MESSAGE_BYTES_MAX, INBOX_WAIT_MS, &message, &error) == 0) {
		goes_on = inbox_put(inbox, &message);
		if (!goes_on)
			peer_message_clear(&message);
	}
	pthread_mutex_lock(&inbox->lock);
	if (!error.code)
		error_set(&error, -ECANCELED, NULL, "the connection was closed here");
	inbox->end = error;
	signal_event(inbox);
	pthread_mutex_unlock(&inbox->lock);
	return NULL;
}

int inbox_open(struct link *link, struct inbox **ret, struct error *error)
{
	struct inbox *inbox = calloc(1, sizeof(*inbox));
	int r;

	if (!inbox)
		return error_set(error, -ENOMEM, NULL, "no memory for messages of %s", link_peer(link));
	inbox->link = link;
	pthread_mutex_init(&inbox->lock, NULL);
	pthread_cond_init(&inbox->taken, NULL);
	inbox->event = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE | EFD_NONBLOCK);
	r = inbox->event < 0 ? -errno : -pthread_create(&inbox->thread, NULL, inbox_receive, inbox);
	if (r == 0) {
		*ret = inbox;
		return 0;
	}
	error_set(error, r, NULL, "nobody can receive from %s: %s", link_peer(link), strerror(-r));
	if (inbox->event >= 0)
		close(inbox->event);
	free(inbox);
	return r;
}

struct inbox *inbox_close(struct inbox *inbox)
{
	if (!inbox)
		return NULL;
	pthread_mutex_lock(&inbox->lock);
	inbox->closing = true;
	pthread_cond_signal(&inbox->taken);
	pthread_mutex_unlock(&inbox->lock);
	link_interrupt(inbox->link);
	pthread_join(inbox->thread, NULL);
	while (inbox->count-- > 0) {
		peer_message_clear(&inbox->messages[inbox->first]);
		inbox->first = (inbox->first + 1) % INBOX_MESSAGES_MAX;
	}
	close(inbox->event);
	pthread_cond_destroy(&inbox->taken);
	pthread_mutex_destroy(&inbox->lock);
	free(inbox);
	return NULL;
}

int inbox_fd(const struct inbox *inbox)
{
	return inbox->event;
}

int inbox_take(struct inbox *inbox, struct peer_message *ret, struct error *error)
{
	uint64_t one;
	int r = 0;

	pthread_mutex_lock(&inbox->lock);
	if (inbox->count > 0) {
		*ret = inbox->messages[inbox->first];
		inbox->first = (inbox->first + 1) % INBOX_MESSAGES_MAX;
		inbox->count--;
		while (read(inbox->event, &one, sizeof(one)) < 0) {
			if (errno != EINTR)
				abort(); /* each message has counted */
		}
		pthread_cond_signal(&inbox->taken);
		r = 1;
	} else if (inbox->end.code) {
		/* The event stays as it is: the end is there for ever. */
		*error = inbox->end;
		r = inbox->end.code;
	}
	pthread_mutex_unlock(&inbox->lock);
	return r;
}
