#include "publishers.h"
#include "../work.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <utlist.h>

struct mourning {
	uv_poll_t poll;
	uv_timer_t timer;
	unsigned handles; /* of libuv, not closed yet */
	int pidfd;
	struct shared_charge *charges[PARTS_PER_VERSION_MAX];
	uint32_t count;
	struct quota_charge charge;
	struct mourning *prev, *next;
};

static void on_mourning_closed(uv_handle_t *handle)
{
	struct mourning *m = handle->data;

	if (--m->handles > 0)
		return;
	close(m->pidfd);
	free(m);
}

static void drop_all(struct shared_charge *const *charges, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		shared_charge_drop(charges[i]);
}

static void mourning_end_one(struct mourning *m)
{
	struct work *work = m->poll.loop->data;

	drop_all(m->charges, m->count);
	quota_release(&m->charge);
	DL_DELETE(work->mourning, m);
	uv_close((uv_handle_t *)&m->poll, on_mourning_closed);
	uv_close((uv_handle_t *)&m->timer, on_mourning_closed);
}

/* ---- a process that lives on --------------------------------------------- */

/* The flag of a task that is on its way out, in /proc/PID/stat. */
#define TASK_EXITING 0x4

/* 0: it is gone, or of another PID namespace. */
static int pid_of(int pidfd)
{
	char path[64], line[128];
	FILE *file;
	int pid = 0;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", pidfd);
	file = fopen(path, "re");
	if (!file)
		return 0;
	while (fgets(line, sizeof(line), file) && sscanf(line, "Pid: %d", &pid) != 1)
		;
	fclose(file);
	return pid > 0 ? pid : 0;
}

/* Whether the kernel is taking the process down, which takes seconds where it has much memory. */
static bool is_dying(int pidfd)
{
	char path[64], text[1024] = "";
	unsigned long flags = 0;
	const char *end;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid_of(pidfd));
	file = fopen(path, "re");
	if (!file)
		return false;
	end = fgets(text, sizeof(text), file) ? strrchr(text, ')')
					      : NULL; /* a process may be called anything */
	fclose(file);
	return end && sscanf(end, ") %*c %*d %*d %*d %*d %*d %lu", &flags) == 1 && flags & TASK_EXITING;
}

static void on_patience_over(uv_timer_t *timer)
{
	struct work *work = timer->loop->data;
	struct mourning *m = timer->data;

	if (is_dying(m->pidfd)) {
		uv_timer_again(timer);
		return;
	}
	mourning_end_one(m);
	work_later(work, LATER_ROOM);
}

static void on_gone(uv_poll_t *poll, int status, int events)
{
	struct work *work = poll->loop->data;

	(void)status;
	(void)events;
	mourning_end_one(poll->data);
	work_later(work, LATER_ROOM);
}

/* NULL: not possible. */
static struct mourning *mourning_new(struct work *work, int pidfd)
{
	struct mourning *m = pidfd < 0 ? NULL : calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	m->pidfd = fcntl(pidfd, F_DUPFD_CLOEXEC, 3);
	if (m->pidfd >= 0 && uv_poll_init(work->loop, &m->poll, m->pidfd) == 0) {
		uv_timer_init(work->loop, &m->timer);
		m->handles = 2;
		return m;
	}
	if (m->pidfd >= 0)
		close(m->pidfd);
	free(m);
	return NULL;
}

void mourn(struct work *work, int pidfd, struct shared_charge *const *charges, uint32_t count,
	   struct quota_charge *charge)
{
	struct mourning *m = mourning_new(work, pidfd);

	if (!m) {
		drop_all(charges, count);
		return;
	}
	memcpy(m->charges, charges, count * sizeof(*charges));
	m->count = count;
	m->charge = *charge;
	*charge = (struct quota_charge){0};
	m->poll.data = m->timer.data = m;
	DL_PREPEND(work->mourning, m);
	uv_poll_start(&m->poll, UV_READABLE, on_gone);
	uv_timer_start(&m->timer, on_patience_over, work->config->publish_silence_ms,
		       work->config->publish_silence_ms);
}

void mourning_end(struct work *work)
{
	while (work->mourning)
		mourning_end_one(work->mourning);
}
