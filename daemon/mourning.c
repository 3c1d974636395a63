#include "mourning.h"
#include "server.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct mourning {
	uv_poll_t poll;
	int pidfd;
	struct grant *grants[PARTS_PER_VERSION_MAX];
	uint32_t count;
	struct quota_charge charge;
	struct mourning *next, **link;
};

static void on_closed(uv_handle_t *handle)
{
	struct mourning *m = handle->data;

	close(m->pidfd);
	free(m);
}

static void drop_all(struct grant *const *grants, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		grant_drop(grants[i]);
}

static void end(struct mourning *m)
{
	drop_all(m->grants, m->count);
	quota_release(&m->charge);
	*m->link = m->next;
	if (m->next)
		m->next->link = m->link;
	uv_close((uv_handle_t *)&m->poll, on_closed);
}

static void on_gone(uv_poll_t *poll, int status, int events)
{
	struct server *server = poll->loop->data;

	(void)status;
	(void)events;
	end(poll->data);
	server->room_came = true;
}

/* NULL: not possible. */
static struct mourning *mourning_new(struct server *server, int pidfd)
{
	struct mourning *m = pidfd < 0 ? NULL : calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	m->pidfd = fcntl(pidfd, F_DUPFD_CLOEXEC, 3);
	if (m->pidfd >= 0 && uv_poll_init(&server->loop, &m->poll, m->pidfd) == 0)
		return m;
	if (m->pidfd >= 0)
		close(m->pidfd);
	free(m);
	return NULL;
}

void mourn(struct server *server, int pidfd, struct grant *const *grants, uint32_t count,
	   struct quota_charge *charge)
{
	struct mourning *m = mourning_new(server, pidfd);

	if (!m) {
		drop_all(grants, count);
		return;
	}
	memcpy(m->grants, grants, count * sizeof(*grants));
	m->count = count;
	m->charge = *charge;
	*charge = (struct quota_charge){0};
	m->poll.data = m;
	m->next = server->mourning;
	m->link = &server->mourning;
	if (m->next)
		m->next->link = &m->next;
	server->mourning = m;
	uv_poll_start(&m->poll, UV_READABLE, on_gone);
}

void mourning_end(struct server *server)
{
	while (server->mourning)
		end(server->mourning);
}
