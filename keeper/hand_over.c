#include "take_over.h"
#include "../service/log.h"
#include "../service/manager.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

void hand_over_init(struct hand_over *h, uint64_t generation)
{
	h->generation = generation;
	link_open(&h->link, -1);
}

static enum hand_over_result hand_over_end(struct hand_over *h, enum hand_over_result result)
{
	link_close(&h->link);
	h->step = HAND_OVER_NONE;
	h->deadline_ms = 0;
	return result;
}

void hand_over_accept(struct hand_over *h, int peer, uint64_t now_ms)
{
	link_open(&h->link, peer);
	h->step = HAND_OVER_ASKING;
	h->deadline_ms = now_ms + HAND_OVER_ASK_MS;
}

short hand_over_events(const struct hand_over *h)
{
	return h->step == HAND_OVER_SENDING ? POLLIN | POLLOUT : POLLIN;
}

/* ---- refusing ---- */

/* If the answer can't be delivered, the other keeper has died before it let its program serve. */
static enum hand_over_result on_taken(struct hand_over *h)
{
	int r = link_say(&h->link, LINK_YOURS, "");

	if (r < 0)
		log_warning("the other keeper has taken the store and is gone: %s", strerror(-r));
	return hand_over_end(h, r < 0 ? HAND_OVER_FAILED : HAND_OVER_DONE);
}

/* Tells the other keeper that it gets nothing. If it said TAKEN before the connection was closed for it, it has the store. */
static enum hand_over_result withdraw(struct hand_over *h, const char *why)
{
	bool taken = false;

	log_warning("nothing is handed over: %s", why);
	link_say_last(&h->link, LINK_NO, why);
	shutdown(h->link.sock, SHUT_RD);
	while (h->step == HAND_OVER_WAITING && link_receive(&h->link) == 1)
		taken |= link_text(&h->link, LINK_TAKEN) != NULL;
	return taken ? on_taken(h) : hand_over_end(h, HAND_OVER_FAILED);
}

/* Before the program was told to end: for it, nothing changes. */
static enum hand_over_result refuse_question(struct hand_over *h, const char *why)
{
	withdraw(h, why);
	return HAND_OVER_GO_ON;
}

/* ---- the question ---- */

static enum hand_over_result on_question(struct hand_over *h, const struct store *store)
{
	const char *text = link_text(&h->link, LINK_ASK);
	unsigned long long generation;
	unsigned protocol;
	char why[256];
	size_t max;

	if (!text || sscanf(text, "%u %zu %llu", &protocol, &max, &generation) != 3 ||
	    protocol != LINK_PROTOCOL) {
		snprintf(why, sizeof(why), "this keeper's protocol is %d, the other keeper said \"%.64s\"",
			 LINK_PROTOCOL, h->link.text);
		return refuse_question(h, why);
	}
	if (generation < h->generation) {
		snprintf(why, sizeof(why), "the other keeper's --generation is %llu, this keeper's is %llu",
			 generation, (unsigned long long)h->generation);
		return refuse_question(h, why);
	}
	if (max < store->count) {
		snprintf(why, sizeof(why), "%zu descriptors are stored, --store-max of the other keeper is %zu",
			 store->count, max);
		return refuse_question(h, why);
	}
	h->step = HAND_OVER_STOPPING;
	h->deadline_ms = 0; /* the program's end has one */
	return HAND_OVER_STOP;
}

/* ---- sending ---- */

/* The other keeper gets a copy of the state, so that this one is as it was if the other program can't go on. */
static int copy_state(const struct store_entry *entries, size_t count, int fds[PACKET_FDS_MAX], int *ret_copy)
{
	for (size_t i = 0; i < count; i++) {
		fds[i] = entries[i].fd;
		if (*ret_copy >= 0 || strcmp(entries[i].name, STORE_STATE_NAME) != 0)
			continue;
		*ret_copy = fds[i] = state_copy(entries[i].fd);
		if (fds[i] < 0)
			return fds[i];
	}
	return 0;
}

static int send_some(struct hand_over *h, const struct store *store)
{
	static char text[sizeof(LINK_STORE) + PACKET_FDS_MAX * (FD_NAME_BYTES_MAX + 1)];
	static_assert(sizeof(text) <= PACKET_BYTES_MAX, "a packet takes the longest names");
	int fds[PACKET_FDS_MAX], copy = -1, r;
	size_t left = store->count - h->sent, count = left < PACKET_FDS_MAX ? left : PACKET_FDS_MAX;
	char *next = stpcpy(text, LINK_STORE);

	for (size_t i = 0; i < count; i++) {
		*next++ = '\n';
		next = stpcpy(next, store->entries[h->sent + i].name);
	}
	r = copy_state(store->entries + h->sent, count, fds, &copy);
	if (r == 0)
		r = packet_send(h->link.sock, text, (size_t)(next - text), fds, count);
	if (copy >= 0)
		close(copy);
	if (r == 0)
		h->sent += count;
	return r;
}

static enum hand_over_result go_on_sending(struct hand_over *h, const struct store *store)
{
	char why[128], count[32];
	int r = 0;

	while (r == 0 && h->sent < store->count)
		r = send_some(h, store);
	if (r == 0) {
		snprintf(count, sizeof(count), "%zu", store->count);
		r = link_say(&h->link, LINK_END, count);
	}
	if (r == 0)
		h->step = HAND_OVER_WAITING;
	if (r == 0 || r == -EAGAIN)
		return HAND_OVER_GO_ON;
	snprintf(why, sizeof(why), "the descriptors can't be sent: %s", strerror(-r));
	return withdraw(h, why);
}

/* The socket and its lock come first: if this keeper dies while it sends the rest, no third one can begin. */
enum hand_over_result hand_over_begin(struct hand_over *h, const struct store *store,
				      const struct take_over_socket *sock, uint64_t now_ms)
{
	const int fds[] = {sock->listener, sock->lock};

	h->step = HAND_OVER_SENDING;
	h->deadline_ms = now_ms + HAND_OVER_MS;
	h->sent = 0;
	if (packet_send(h->link.sock, LINK_BEGIN " ", sizeof(LINK_BEGIN), fds, 2) < 0)
		return withdraw(h, "the take-over socket can't be sent");
	return go_on_sending(h, store);
}

/* ---- the other keeper ---- */

static enum hand_over_result on_packet(struct hand_over *h, const struct store *store)
{
	const char *why = link_text(&h->link, LINK_BACK);

	if (h->step == HAND_OVER_ASKING)
		return on_question(h, store);
	if (h->step == HAND_OVER_WAITING && link_text(&h->link, LINK_TAKEN))
		return on_taken(h);
	if (!why)
		return withdraw(h, "the other keeper said what it may not say now");
	log_warning("the other keeper gives everything back: %s", why);
	link_say(&h->link, LINK_MINE, "it was given back");
	return hand_over_end(h, HAND_OVER_FAILED);
}

enum hand_over_result hand_over_go_on(struct hand_over *h, const struct store *store)
{
	int r = link_receive(&h->link);

	if (r > 0)
		return on_packet(h, store);
	if (r == -EAGAIN)
		return h->step == HAND_OVER_SENDING ? go_on_sending(h, store) : HAND_OVER_GO_ON;
	if (h->step == HAND_OVER_ASKING)
		return hand_over_end(h, HAND_OVER_GO_ON);
	log_warning("the other keeper has ended before it took over");
	return hand_over_end(h, HAND_OVER_FAILED);
}

enum hand_over_result hand_over_late(struct hand_over *h)
{
	if (h->step == HAND_OVER_ASKING)
		return refuse_question(h, "the other keeper connected and did not ask");
	return withdraw(h, "the other keeper's program did not adopt the descriptors in time");
}

#define CHUNK_BYTES 65536

static int copy_bytes(int from, int to, off_t offset, off_t end)
{
	char chunk[CHUNK_BYTES];

	while (offset < end) {
		size_t wanted = end - offset < CHUNK_BYTES ? (size_t)(end - offset) : CHUNK_BYTES;
		ssize_t got = pread(from, chunk, wanted, offset);

		if (got <= 0 || pwrite(to, chunk, (size_t)got, offset) != got)
			return got < 0 ? -errno : -EIO;
		offset += got;
	}
	return 0;
}

/* The state has 128 MiB, of which the kernel holds only what was written. */
static int copy_data(int from, int to)
{
	off_t data = lseek(from, 0, SEEK_DATA), hole;
	int r = 0;

	while (r == 0 && data >= 0) {
		hole = lseek(from, data, SEEK_HOLE);
		if (hole < 0)
			return -errno;
		r = copy_bytes(from, to, data, hole);
		data = lseek(from, hole, SEEK_DATA);
	}
	return r < 0 || errno == ENXIO ? r : -errno; /* ENXIO: there is no more */
}

int state_copy(int fd)
{
	int seals = fcntl(fd, F_GET_SEALS), copy, r;
	struct stat status;

	if (seals < 0)
		return -errno;
	copy = memfd_create(STORE_STATE_NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (copy < 0)
		return -errno;
	r = fstat(fd, &status) < 0 || ftruncate(copy, status.st_size) < 0 ? -errno : copy_data(fd, copy);
	if (r == 0 && fcntl(copy, F_ADD_SEALS, seals) < 0)
		r = -errno;
	if (r == 0)
		return copy;
	close(copy);
	return r;
}
