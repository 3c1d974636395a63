#include "inherited.h"
#include "../../service/log.h"
#include "store.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

/* ---- looking at descriptors ---- */

/* The kernel is short of memory for moments. A cause that lasts longer than this is left to the next start, which has
 * the same descriptors again: 0.1 seconds a descriptor delay no start by much. */
#define TRIES 6
#define PAUSE_MS 20

int look_again(int (*look)(int fd, void *data), int fd, void *data)
{
	int r = look(fd, data);

	for (int i = 1; i < TRIES && r < 0 && r != -EINVAL; i++) {
		poll(NULL, 0, PAUSE_MS);
		r = look(fd, data);
	}
	return r;
}

/* EBADF: a descriptor of a path alone (O_PATH), which is no memfd either. */
static int look_at_seals(int fd, void *data)
{
	int seals = fcntl(fd, F_GET_SEALS);

	(void)data;
	if (seals >= 0)
		return seals;
	return errno == EBADF ? -EINVAL : -errno;
}

int memfd_seals(int fd)
{
	return look_again(look_at_seals, fd, NULL);
}

static int look_at_bytes(int fd, void *data)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	*(uint64_t *)data = (uint64_t)st.st_size;
	return 0;
}

int memfd_bytes(int fd, uint64_t *ret_bytes)
{
	return look_again(look_at_bytes, fd, ret_bytes);
}

const struct inherited inherited_none = {.sockets = {-1, -1, -1, -1}, .state = -1};

/* ---- what was passed ---- */

static int by_name(const void *a, const void *b)
{
	uint64_t left = ((const struct inherited_fd *)a)->name, right = ((const struct inherited_fd *)b)->name;

	return left < right ? -1 : left > right;
}

static int add_strange(struct inherited *in, const char *name, int fd)
{
	in->strange_fds[in->strange_count] = fd;
	in->strange[in->strange_count] = strdup(name);
	if (!in->strange[in->strange_count])
		return -ENOMEM;
	in->strange_count++;
	return 0;
}

const char *inherited_socket_name(enum inherited_socket which)
{
	static const char *const names[INHERITED_SOCKETS] = {
		[INHERITED_WORKER] = "worker",
		[INHERITED_ADMIN] = "admin",
		[INHERITED_OWN_WORKER] = "own-worker",
		[INHERITED_OWN_ADMIN] = "own-admin",
	};
	return names[which];
}

/* 1: a listening SOCK_SEQPACKET socket; 0: something else; -errno: the call failed. */
static int is_listening(int fd, void *data)
{
	(void)data;
	return sd_is_socket(fd, AF_UNIX, SOCK_SEQPACKET, 1);
}

/* What is no socket by a socket's name, or comes a second time, is strange. 1: taken; 0: strange; -errno. */
static int take_socket(struct inherited *in, const char *name, int fd)
{
	int i = 0, r;

	while (i < INHERITED_SOCKETS && strcmp(name, inherited_socket_name((enum inherited_socket)i)) != 0)
		i++;
	if (i == INHERITED_SOCKETS)
		return 0;
	r = in->sockets[i] >= 0 ? 0 : look_again(is_listening, fd, NULL);
	if (r < 0)
		return r;
	if (r == 0) {
		log_warning(
			"a descriptor that was passed as \"%s\" is no listening SOCK_SEQPACKET socket, or a "
			"second one: it is not used",
			name);
		return 0;
	}
	in->sockets[i] = fd;
	return 1;
}

static int sort_in(struct inherited *in, const char *name, int fd)
{
	int r = take_socket(in, name, fd);
	uint64_t number;

	if (r != 0)
		return r < 0 ? r : 0;
	if (strcmp(name, STORE_STATE) == 0 && in->state < 0) {
		in->state = fd;
		return 0;
	}
	if (store_name_parse(name, &number) < 0)
		return add_strange(in, name, fd);
	in->ours[in->count++] = (struct inherited_fd){number, fd};
	return 0;
}

static bool is_of_used_socket(const struct inherited *in, const char *name)
{
	int i = 0;

	while (i < INHERITED_SOCKETS &&
	       (in->sockets[i] < 0 || strcmp(name, inherited_socket_name((enum inherited_socket)i)) != 0))
		i++;
	return i < INHERITED_SOCKETS;
}

/* What has the name of a socket that is used stays in the store: removed by its name, it would take the socket along. */
static void leave_namesakes(struct inherited *in)
{
	size_t kept = 0;

	for (size_t i = 0; i < in->strange_count; i++) {
		if (is_of_used_socket(in, in->strange[i])) {
			close(in->strange_fds[i]);
			free(in->strange[i]);
			continue;
		}
		in->strange_fds[kept] = in->strange_fds[i];
		in->strange[kept++] = in->strange[i];
	}
	in->strange_count = kept;
}

/* A name is never used again: which of two is the one it was can't be told, so neither is ours. */
static int drop_doubles(struct inherited *in)
{
	char text[STORE_NAME_TEXT];
	size_t kept = 0;

	qsort(in->ours, in->count, sizeof(*in->ours), by_name);
	for (size_t i = 0; i < in->count; i++) {
		const bool as_before = i > 0 && in->ours[i - 1].name == in->ours[i].name;
		const bool as_next = i + 1 < in->count && in->ours[i + 1].name == in->ours[i].name;

		if (!as_before && !as_next)
			continue;
		store_name_format(in->ours[i].name, text);
		if (add_strange(in, text, in->ours[i].fd) < 0)
			return -ENOMEM;
		in->ours[i].fd = -1;
	}
	for (size_t i = 0; i < in->count; i++) {
		if (in->ours[i].fd >= 0)
			in->ours[kept++] = in->ours[i];
	}
	in->count = kept;
	return 0;
}

int inherited_read(struct inherited *ret, struct error *error)
{
	const char *passed_names = getenv("LISTEN_FDNAMES");
	char **names = NULL;
	int count, r = 0;

	*ret = inherited_none;
	ret->passed_names = passed_names ? strdup(passed_names) : NULL;
	count = sd_listen_fds_with_names(1, &names);
	if (count < 0) {
		inherited_clear(ret);
		return error_set(error, count, "LISTEN_PID, LISTEN_FDS, LISTEN_FDNAMES",
				 "the descriptors that were passed can't be told: %s", strerror(-count));
	}
	ret->passed = count;
	ret->ours = calloc((size_t)count + 1, sizeof(*ret->ours));
	ret->strange = calloc((size_t)count + 1, sizeof(*ret->strange));
	ret->strange_fds = calloc((size_t)count + 1, sizeof(*ret->strange_fds));
	if ((passed_names && !ret->passed_names) || !ret->ours || !ret->strange || !ret->strange_fds)
		r = -ENOMEM;
	for (int i = 0; i < count; i++) {
		if (r == 0)
			r = sort_in(ret, names[i], SD_LISTEN_FDS_START + i);
		free(names[i]);
	}
	free(names);
	leave_namesakes(ret);
	if (r == 0)
		r = drop_doubles(ret);
	if (r < 0) {
		inherited_clear(ret);
		return error_set(error, r, NULL, "the %d descriptors that were passed can't be looked at: %s",
				 count, strerror(-r));
	}
	return 0;
}

void inherited_clear(struct inherited *in)
{
	for (int i = 0; i < INHERITED_SOCKETS; i++) {
		if (in->sockets[i] >= 0)
			close(in->sockets[i]);
	}
	if (in->state >= 0)
		close(in->state);
	for (size_t i = 0; i < in->count; i++) {
		if (in->ours[i].fd >= 0)
			close(in->ours[i].fd);
	}
	for (size_t i = 0; i < in->strange_count; i++) {
		if (in->strange_fds[i] >= 0)
			close(in->strange_fds[i]);
		free(in->strange[i]);
	}
	free(in->ours);
	free(in->strange);
	free(in->strange_fds);
	free(in->passed_names);
	*in = inherited_none;
}

bool inherited_has_versions(const struct inherited *in)
{
	return in->state >= 0 || in->count > 0;
}

#define NUMBER_TEXT 16

int inherited_pass_on(const struct inherited *in)
{
	char count[NUMBER_TEXT], pid[NUMBER_TEXT];
	int r = 0;

	snprintf(count, sizeof(count), "%d", in->passed);
	snprintf(pid, sizeof(pid), "%d", (int)getpid());
	for (int fd = SD_LISTEN_FDS_START; r == 0 && fd < SD_LISTEN_FDS_START + in->passed; fd++)
		r = fcntl(fd, F_SETFD, 0) < 0 ? -errno : 0;
	if (r == 0 && (setenv("LISTEN_FDS", count, 1) < 0 || setenv("LISTEN_PID", pid, 1) < 0 ||
		       (in->passed_names && setenv("LISTEN_FDNAMES", in->passed_names, 1) < 0)))
		r = -ENOMEM;
	return r;
}

int inherited_take_socket(struct inherited *in, enum inherited_socket which)
{
	int fd = in->sockets[which];

	in->sockets[which] = -1;
	return fd;
}

static struct inherited_fd *inherited_find(const struct inherited *in, uint64_t name)
{
	const struct inherited_fd key = {.name = name};
	struct inherited_fd *found =
		in->count ? bsearch(&key, in->ours, in->count, sizeof(key), by_name) : NULL;

	return found && found->fd >= 0 ? found : NULL;
}

int inherited_look(const struct inherited *in, uint64_t name)
{
	const struct inherited_fd *found = inherited_find(in, name);

	return found ? found->fd : -1;
}

int inherited_take(struct inherited *in, uint64_t name)
{
	struct inherited_fd *found = inherited_find(in, name);
	int fd = found ? found->fd : -1;

	if (found)
		found->fd = -1;
	return fd;
}
