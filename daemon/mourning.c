#include "mourning.h"
#include "server.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

struct mourning {
	uv_poll_t poll;
	int pidfd;
	struct grant *grant;
	struct mourning *next, **link;
};

static void on_closed(uv_handle_t *handle)
{
	struct mourning *m = handle->data;

	close(m->pidfd);
	free(m);
}

static void end(struct mourning *m)
{
	m->grant = grant_drop(m->grant);
	*m->link = m->next;
	if (m->next)
		m->next->link = m->link;
	uv_close((uv_handle_t *)&m->poll, on_closed);
}

static void on_gone(uv_poll_t *poll, int status, int events)
{
	(void)status;
	(void)events;
	end(poll->data);
}

void mourn(struct server *server, int pidfd, struct grant *grant)
{
	struct mourning *m = pidfd < 0 ? NULL : calloc(1, sizeof(*m));

	if (!m) {
		grant_drop(grant);
		return;
	}
	m->grant = grant;
	m->pidfd = fcntl(pidfd, F_DUPFD_CLOEXEC, 3);
	if (m->pidfd < 0 || uv_poll_init(&server->loop, &m->poll, m->pidfd) < 0) {
		if (m->pidfd >= 0)
			close(m->pidfd);
		free(m);
		grant_drop(grant);
		return;
	}
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
