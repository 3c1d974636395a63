#include "standby.h"

#include "../service/log.h"
#include "files/roots.h"

#include "../proto/wire/packet.h"
#include "../base/utf8.h"
#include "../service/root.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* A local folder takes microseconds. A process that ends waits no longer than this for a file system that hangs. */
#define END_SECONDS 1

struct roots_look {
	int connection;
	int sock; /* of a look that began, for it alone: it may hang until the connection is closed */
	const struct roots_service *service;
	struct roots_service now; /* what it was when the look began */
	bool began; /* there is a thread to join */
	atomic_bool judging; /* not yet sending, so that who has read the judgement can ask for the next one */
	pthread_t thread;
	struct roots roots;
};

struct roots_look *roots_look_new(int sock, const struct roots_service *service)
{
	struct roots_look *look = calloc(1, sizeof(*look));

	if (!look)
		return NULL;
	look->service = service;
	look->connection = sock;
	return look;
}

static void look_send(struct roots_look *look, const struct root_told *told, uint32_t count)
{
	struct loader_roots_params params = {{told, count}};
	struct message_writer w;
	int r;

	atomic_store(&look->judging, false);
	message_write_notification(&w, &form_loader_roots, &params);
	r = message_finish(&w);
	if (r == 0)
		r = packet_send(look->sock, w.buffer.data, w.buffer.size, NULL, 0);
	if (r < 0 && r != -EPIPE && r != -ECONNRESET) /* gpuwmd is gone */
		log_plain("gpuwmd was not told which roots can be used: %s", strerror(-r));
	message_writer_clear(&w);
}

/* errors: one for each root. */
static void look_judge(struct roots_look *look, struct error *errors)
{
	struct root_told told[ROOTS_MAX];
	struct error error;

	if (look->now.own && roots_read(look->now.file, &look->roots, &error) < 0) {
		look_send(look, &(struct root_told){.root = "", .error = &error}, 1);
		return;
	}
	for (size_t i = 0; i < look->roots.count; i++) {
		int r = root_check(look->roots.paths[i], &errors[i]);

		utf8_make_line(look->roots.paths[i]);
		told[i] = (struct root_told){.root = look->roots.paths[i], .error = r < 0 ? &errors[i] : NULL};
	}
	look_send(look, told, (uint32_t)look->roots.count);
}

static void *look_run(void *data)
{
	struct roots_look *look = data;
	struct error *errors = calloc(ROOTS_MAX, sizeof(*errors));

	if (errors)
		look_judge(look, errors);
	else
		log_plain("the roots are not judged: there is no memory");
	free(errors);
	roots_clear(&look->roots);
	atomic_store(&look->judging, false);
	return NULL;
}

static int copy_roots(struct roots *ret, const char *const *roots, uint32_t count)
{
	ret->paths = calloc(ROOTS_MAX, sizeof(*ret->paths));
	while (ret->paths && ret->count < count && (ret->paths[ret->count] = strdup(roots[ret->count])))
		ret->count++;
	return ret->paths && ret->count == count ? 0 : -ENOMEM;
}

void roots_look_begin(struct roots_look *look, const char *const *roots, uint32_t count)
{
	int r;

	if (atomic_load(&look->judging))
		return;
	if (look->began) {
		pthread_join(look->thread, NULL); /* it sends at most, which does not block */
		close(look->sock);
		look->began = false;
	}
	look->now = *look->service;
	r = look->now.own ? 0 : copy_roots(&look->roots, roots, count);
	look->sock = r == 0 ? fcntl(look->connection, F_DUPFD_CLOEXEC, 0) : -1;
	if (r == 0 && look->sock < 0)
		r = -errno;
	atomic_store(&look->judging, r == 0);
	if (r == 0)
		r = -pthread_create(&look->thread, NULL, look_run, look);
	look->began = r == 0;
	if (r == 0)
		return;
	atomic_store(&look->judging, false);
	if (look->sock >= 0)
		close(look->sock);
	roots_clear(&look->roots);
	log_plain("the roots are not judged: %s", strerror(-r));
}

struct roots_look *roots_look_free(struct roots_look *look)
{
	struct timespec end;

	if (!look)
		return NULL;
	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += END_SECONDS;
	if (look->began && pthread_timedjoin_np(look->thread, NULL, &end) != 0)
		return NULL;
	if (look->began)
		close(look->sock);
	free(look);
	return NULL;
}
