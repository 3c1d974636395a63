#include "net.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct batch {
	int socks[DISCARD_MAX];
	size_t count;
};

struct discard {
	uv_loop_t *loop;
	uv_work_t work;
	struct batch waiting, closing;
	bool running, ended;
};

static void close_all(struct batch *batch)
{
	for (size_t i = 0; i < batch->count; i++)
		close(batch->socks[i]);
	batch->count = 0;
}

static void close_on_thread(uv_work_t *work)
{
	struct discard *discard = work->data;

	close_all(&discard->closing);
}

static void discard_begin(struct discard *discard);

static void discard_on_closed(uv_work_t *work, int status)
{
	struct discard *discard = work->data;

	(void)status;
	discard->running = false;
	if (discard->ended)
		free(discard);
	else if (discard->waiting.count > 0)
		discard_begin(discard);
}

static void discard_begin(struct discard *discard)
{
	memcpy(&discard->closing, &discard->waiting, sizeof(discard->closing));
	discard->waiting.count = 0;
	discard->running = true;
	uv_queue_work(discard->loop, &discard->work, close_on_thread, discard_on_closed);
}

struct discard *discard_new(uv_loop_t *loop)
{
	struct discard *discard = calloc(1, sizeof(*discard));

	if (!discard)
		return NULL;
	discard->loop = loop;
	discard->work.data = discard;
	return discard;
}

struct discard *discard_free(struct discard *discard)
{
	if (!discard)
		return NULL;
	close_all(&discard->waiting);
	discard->ended = true;
	if (!discard->running)
		free(discard);
	return NULL;
}

void discard_socket(struct discard *discard, int sock)
{
	if (discard->waiting.count == DISCARD_MAX) {
		close(sock);
		return;
	}
	discard->waiting.socks[discard->waiting.count++] = sock;
	if (!discard->running)
		discard_begin(discard);
}
