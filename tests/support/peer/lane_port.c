#include "lane_port.h"

#include "certificates.h"
#include "peer/port.h"
#include "peer/serve.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

#define CONNECTIONS_MAX 64

static struct {
	int fd;
	pthread_t thread, threads[CONNECTIONS_MAX];
	unsigned count;
	atomic_bool ending;
	const struct lane_port *port;
	struct peer_keys *keys;
	struct server server;
} here;

static int find(void *user, const char *ref, struct served_version **ret, struct error *error)
{
	(void)user;
	(void)ret;
	return error_set(error, -ENOENT, NULL, "there is no %s", ref);
}

static const struct serve_source source = {.find = find};

struct connection {
	int fd;
	unsigned number;
};

static struct connection connections[CONNECTIONS_MAX];

static void *serve(void *user_data)
{
	const struct connection *connection = user_data;
	struct serve_report report;
	struct error error;
	struct link *link;

	if (link_accept(here.keys, connection->fd, LINK_HANDSHAKE_MS, &link, &error) < 0)
		return NULL;
	if (here.port->instead)
		here.port->instead(link, connection->number);
	else
		serve_link(&here.server, link, &report, &error);
	link_close(link);
	return NULL;
}

static void *accept_all(void *unused)
{
	struct pollfd wait = {.fd = here.fd, .events = POLLIN};
	int silent[CONNECTIONS_MAX];
	unsigned silent_count = 0;

	while (!atomic_load(&here.ending)) {
		int fd = poll(&wait, 1, 10) > 0 ? accept4(here.fd, NULL, NULL, SOCK_CLOEXEC) : -1;

		if (fd < 0)
			continue;
		connections[here.count] = (struct connection){fd, here.count};
		if (here.port->silent)
			silent[silent_count++] = fd;
		else
			pthread_create(&here.threads[here.count], NULL, serve, &connections[here.count]);
		here.count += !here.port->silent;
	}
	while (silent_count > 0)
		close(silent[--silent_count]);
	return unused;
}

void lane_port_begin(struct lane_port *port, bool clear)
{
	struct error error;
	unsigned number;

	signal(SIGPIPE, SIG_IGN);
	certificates_begin();
	certificates_write("secret", "0123456789abcdef0123456789abcdef", 0600);
	here.keys = keys_of(settings_of_secret("secret"));
	here.server.source = &source;
	here.server.program = "test";
	here.server.clear = clear;
	here.port = port;
	here.fd = port_open("127.0.0.1:0", false, &number, &error);
	cr_assert_geq(here.fd, 0, "%s", error.message);
	cr_assert_eq(pthread_create(&here.thread, NULL, accept_all, NULL), 0);
	port->keys = here.keys;
	port->target = (struct link_target){"127.0.0.1", number, NULL};
}

void lane_port_end(struct lane_port *port)
{
	atomic_store(&here.ending, true);
	pthread_join(here.thread, NULL);
	while (here.count > 0)
		pthread_join(here.threads[--here.count], NULL);
	close(here.fd);
	peer_keys_release(here.keys);
	certificates_end();
	port->keys = NULL;
}
