#include "haproxy.h"

#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define TRICKLE_MS 100

static const char *const states[] = {[SLOT_MAINT] = "maint", [SLOT_READY] = "ready", [SLOT_DRAIN] = "drain"};

static int listen_at(struct fake_haproxy *fake)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct sockaddr_in inet = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t bytes = sizeof(inet);

	strcpy(address.sun_path, fake->path);
	fake->listeners[0] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	fake->listeners[1] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	cr_assert_eq(bind(fake->listeners[0], (struct sockaddr *)&address, sizeof(address)), 0);
	cr_assert_eq(bind(fake->listeners[1], (struct sockaddr *)&inet, sizeof(inet)), 0);
	cr_assert_eq(getsockname(fake->listeners[1], (struct sockaddr *)&inet, &bytes), 0);
	snprintf(fake->address, sizeof(fake->address), "127.0.0.1:%u", ntohs(inet.sin_port));
	return listen(fake->listeners[0], 16) | listen(fake->listeners[1], 16);
}

/* ---- what it says ---- */

static void show(const struct fake_haproxy *fake, char *text, size_t size)
{
	static const int admin[] = {[SLOT_MAINT] = 5, [SLOT_READY] = 4, [SLOT_DRAIN] = 12};
	size_t used = (size_t)snprintf(text, size, "1\n# be_name srv_name srv_addr srv_admin_state srv_port\n");

	for (int i = 0; i < FAKE_SLOTS; i++)
		used += (size_t)snprintf(text + used, size - used, "b %s %s %d %u\n", fake->slots[i].name,
					 fake->slots[i].ip, admin[fake->slots[i].state], fake->slots[i].port);
}

static void set(struct fake_haproxy *fake, const char *line, char *text, size_t size)
{
	char name[8], what[8], value[ADDRESS_IP_TEXT];
	unsigned port = 0;
	struct slot *slot;

	cr_assert_geq(sscanf(line, "set server b/%7s %7s %45s port %u", name, what, value, &port), 3, "%s",
		      line);
	fake->commands++;
	slot = &fake->slots[atoi(name + 1) - 1];
	if (strcmp(what, "addr") == 0)
		snprintf(text, size, "IP changed from '%s' to '%s'\n", slot->ip, value);
	if (fake->deaf)
		return;
	if (strcmp(what, "addr") == 0) {
		snprintf(slot->ip, sizeof(slot->ip), "%s", value);
		slot->port = port;
	}
	for (int i = 0; i < 3; i++)
		slot->state = strcmp(value, states[i]) == 0 ? (enum slot_state)i : slot->state;
}

static void answer(struct fake_haproxy *fake, const char *line, char *text, size_t size)
{
	text[0] = '\0';
	if (fake->says)
		snprintf(text, size, "%s\n", fake->says);
	else if (strncmp(line, "show servers state", 18) == 0)
		show(fake, text, size);
	else
		set(fake, line, text, size);
	strcat(text, "\n");
}

static void flood(int sock, size_t bytes)
{
	static const char block[4096] = {'x'};

	while (bytes > 0 && send(sock, block, sizeof(block), MSG_NOSIGNAL) > 0)
		bytes -= bytes < sizeof(block) ? bytes : sizeof(block);
}

static void serve(struct fake_haproxy *fake, int listener)
{
	char line[600], text[2048];
	int sock = accept(listener, NULL, NULL);
	ssize_t got = recv(sock, line, sizeof(line) - 1, 0);

	if (fake->hangs) {
		struct pollfd until = {.fd = sock, .events = POLLRDHUP};

		poll(&until, 1, -1);
	} else if (fake->trickles) {
		while (send(sock, "1", 1, MSG_NOSIGNAL) > 0)
			poll(NULL, 0, TRICKLE_MS);
	} else if (fake->floods) {
		flood(sock, fake->floods);
	} else if (got > 0) {
		line[got] = '\0';
		answer(fake, line, text, sizeof(text));
		send(sock, text, strlen(text), MSG_NOSIGNAL);
	}
	close(sock);
}

static void *run(void *data)
{
	struct fake_haproxy *fake = data;

	for (;;) {
		struct pollfd polled[] = {{.fd = fake->stop[0], .events = POLLIN},
					  {.fd = fake->listeners[0], .events = POLLIN},
					  {.fd = fake->listeners[1], .events = POLLIN}};

		poll(polled, 3, -1);
		if (polled[0].revents)
			return NULL;
		for (int i = 0; i < 2; i++) {
			if (polled[i + 1].revents)
				serve(fake, fake->listeners[i]);
		}
	}
}

struct fake_haproxy *fake_haproxy_start(void)
{
	struct fake_haproxy *fake = calloc(1, sizeof(*fake));

	strcpy(fake->folder, "/tmp/gpuwm-haproxy-XXXXXX");
	cr_assert(mkdtemp(fake->folder));
	snprintf(fake->path, sizeof(fake->path), "%s/s", fake->folder);
	for (int i = 0; i < FAKE_SLOTS; i++) {
		fake->slots[i] = (struct slot){.ip = "127.0.0.1", .port = 1};
		snprintf(fake->slots[i].name, sizeof(fake->slots[i].name), "w%d", i + 1);
	}
	cr_assert_eq(listen_at(fake), 0);
	cr_assert_eq(pipe(fake->stop), 0);
	cr_assert_eq(pthread_create(&fake->thread, NULL, run, fake), 0);
	return fake;
}

void fake_haproxy_stop(struct fake_haproxy *fake)
{
	char command[96];

	cr_assert_eq(write(fake->stop[1], "", 1), 1);
	pthread_join(fake->thread, NULL);
	for (int i = 0; i < 2; i++) {
		close(fake->stop[i]);
		close(fake->listeners[i]);
	}
	snprintf(command, sizeof(command), "rm -r %s", fake->folder);
	cr_assert_eq(system(command), 0);
	free(fake);
}

const char *fake_haproxy_slots(const struct fake_haproxy *fake)
{
	static char text[400];
	size_t used = 0;

	text[0] = '\0';
	for (int i = 0; i < FAKE_SLOTS; i++) {
		const struct slot *slot = &fake->slots[i];

		if (slot->state != SLOT_MAINT)
			used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s %s %s:%u",
						 used ? ", " : "", slot->name, states[slot->state], slot->ip,
						 slot->port);
	}
	return text;
}
