#include "environment.h"
#include "../service/store_answer.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PID_BYTES 12 /* a pid_t and its terminating zero */
#define OURS_MAX 9

/* Variables of whoever started the keeper that would tell the program wrong things. */
static const char *const removed[] = {
	"NOTIFY_SOCKET=",        "FDSTORE=",       "LISTEN_FDS=",   "LISTEN_PID=", "LISTEN_PIDFDID=",
	"LISTEN_FDNAMES=",       "WATCHDOG_USEC=", "WATCHDOG_PID=", "MAINPID=",    STORE_ANSWER_VARIABLE "=",
	STORE_ADOPT_VARIABLE "="};

static bool is_removed(const char *variable)
{
	for (size_t i = 0; i < sizeof(removed) / sizeof(removed[0]); i++) {
		if (strncmp(variable, removed[i], strlen(removed[i])) == 0)
			return true;
	}
	return false;
}

static char *put_names(char *text, const struct store *store)
{
	char *end = stpcpy(text, "LISTEN_FDNAMES=");

	for (size_t i = 0; i < store->count; i++) {
		if (i > 0)
			*end++ = ':';
		end = stpcpy(end, store->entries[i].name);
	}
	return end + 1;
}

/* Writes the texts one behind the other into e->texts, which has room for them. */
static void put_ours(struct environment *e, char **next, const char *notify_socket, const struct store *store,
		     uint64_t watchdog_us, bool adopt)
{
	char *text = e->texts;

#define PUT(...) (*next++ = text, text += sprintf(text, __VA_ARGS__) + 1)
	PUT("NOTIFY_SOCKET=%s", notify_socket);
	PUT(STORE_ANSWER_VARIABLE "=1");
	if (adopt)
		PUT(STORE_ADOPT_VARIABLE "=1");
	if (store->max > 0)
		PUT("FDSTORE=%zu", store->max);
	if (store->count > 0) {
		PUT("LISTEN_FDS=%zu", store->count);
		*next++ = text;
		text = put_names(text, store);
		e->listen_pid = text + strlen("LISTEN_PID=");
		PUT("LISTEN_PID=");
		text += PID_BYTES;
	}
	if (watchdog_us > 0) {
		PUT("WATCHDOG_USEC=%llu", (unsigned long long)watchdog_us);
		e->watchdog_pid = text + strlen("WATCHDOG_PID=");
		PUT("WATCHDOG_PID=");
	}
#undef PUT
	*next = NULL;
}

int environment_make(struct environment *ret, char *const *base, const char *notify_socket,
		     const struct store *store, uint64_t watchdog_us, bool adopt)
{
	/* Each of the keeper's variables but those two has at most 64 bytes. */
	size_t bytes = OURS_MAX * 64 + strlen(notify_socket) + store->name_bytes, count = 0, kept = 0;
	struct environment e = {0};

	while (base[count])
		count++;
	e.variables = calloc(count + OURS_MAX + 1, sizeof(*e.variables));
	e.texts = malloc(bytes);
	if (!e.variables || !e.texts) {
		environment_clear(&e);
		return -ENOMEM;
	}
	for (size_t i = 0; i < count; i++) {
		if (!is_removed(base[i]))
			e.variables[kept++] = base[i];
	}
	put_ours(&e, e.variables + kept, notify_socket, store, watchdog_us, adopt);
	*ret = e;
	return 0;
}

void environment_set_pid(struct environment *environment, pid_t pid)
{
	if (environment->listen_pid)
		snprintf(environment->listen_pid, PID_BYTES, "%d", (int)pid);
	if (environment->watchdog_pid)
		snprintf(environment->watchdog_pid, PID_BYTES, "%d", (int)pid);
}

void environment_clear(struct environment *environment)
{
	free(environment->variables);
	free(environment->texts);
	*environment = (struct environment){0};
}
