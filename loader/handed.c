#include "files/roots.h"

#include "work.h"

#include "../base/clock.h"
#include "../base/text.h"
#include "../proto/wire/messages.h"
#include "../proto/wire/packet.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int handed_check_file(const struct handed *handed, const char *name, int fd, struct error *error)
{
	const int flags = fcntl(fd, F_GETFL);
	struct stat stat;

	if (!path_is_beneath(name))
		return error_set(error, -EINVAL, "no part of a name is empty or begins with a dot",
				 "the load was passed a file named \"%s\"", name);
	for (size_t i = 0; i < handed->count; i++)
		if (strcmp(handed->names[i], name) == 0)
			return error_set(error, -EINVAL, "pass each file once",
					 "the load was passed two files named \"%s\"", name);
	if (flags < 0 || flags & O_PATH || (flags & O_ACCMODE) == O_WRONLY)
		return error_set(error, -EACCES, "open it with O_RDONLY",
				 "the load was passed %s, but not open for reading", name);
	if (fstat(fd, &stat) < 0)
		return error_set(error, -errno, NULL, "%s: %s", name, strerror(errno));
	if (!S_ISREG(stat.st_mode))
		return error_set(error, -EINVAL, NULL, "the load was passed %s, which is no regular file",
				 name);
	return 0;
}

static int handed_take_file(struct packet *packet, size_t position, const char *name, struct handed *handed,
			    struct error *error)
{
	int fd, r;

	if (packet_take_fd(packet, position, &fd) < 0)
		return error_set(error, -EPROTO, NULL, "the load was passed the name %s without a file", name);
	r = handed_check_file(handed, name, fd, error);
	handed->names[handed->count] = strdup(name);
	if (r == 0 && !handed->names[handed->count])
		r = error_set(error, -ENOMEM, NULL, "gpuwm-loader is out of memory");
	if (r < 0) {
		free(handed->names[handed->count]);
		close(fd);
		return r;
	}
	handed->fds[handed->count++] = fd;
	return 0;
}

static int handed_take_files(struct packet *packet, struct message *message, struct handed *handed,
			     struct error *error)
{
	struct hand_files_params params;
	int r = record_read(form_hand_files.params, message, &params, error);

	if (r == 0 && params.names.count != packet->fd_count)
		r = error_set(error, -EPROTO, NULL, "the load was passed %zu files with %u names",
			      packet->fd_count, params.names.count);
	for (uint32_t i = 0; r == 0 && i < params.names.count; i++)
		r = handed_take_file(packet, i, params.names.items[i], handed, error);
	return r;
}

static int handed_read_packet(struct packet *packet, struct handed *handed, struct error *error)
{
	struct message message = {0};
	const char *why;
	int r;

	if (packet->cut || packet->fds_cut)
		return error_set(error, -EPROTO, NULL,
				 "the packet of files is above %d bytes or %d descriptors", PACKET_BYTES_MAX,
				 PACKET_FDS_MAX);
	r = message_read(packet->data, packet->bytes, &message, &why);
	if (r < 0)
		return error_set(error, r, NULL, "the packet of files is no valid message: %s", why);
	if (message.type != MESSAGE_NOTIFICATION || strcmp(message.method, form_hand_files.name) != 0)
		r = error_set(error, -EPROTO, NULL, "the load was passed something else than its files");
	else
		r = handed_take_files(packet, &message, handed, error);
	message_clear(&message);
	return r;
}

/* Receives the packet if it is there. Returns 1, 0 or -errno. */
static int handed_receive_packet(int sock, struct handed *handed, struct error *error)
{
	struct packet packet = {.data = malloc(PACKET_BYTES_MAX + 1)};
	int r;

	if (!packet.data)
		return error_set(error, -ENOMEM, NULL, "gpuwm-loader is out of memory");
	r = packet_receive(sock, true, &packet);
	if (r == 0) {
		r = error_set(error, -ECONNABORTED, "load again",
			      "the process that began the load went away before it passed the files");
	} else if (r > 0) {
		r = handed_read_packet(&packet, handed, error);
		r = r < 0 ? r : 1;
	} else if (r == -EAGAIN || r == -EINTR) {
		r = 0;
	} else {
		error_set(error, r, NULL, "receiving the files of the load failed: %s", strerror(-r));
	}
	packet_drop(&packet);
	free(packet.data);
	return r;
}

int handed_receive(int sock, const char *folder, struct work *work, struct handed *ret, struct error *error)
{
	const uint64_t deadline = clock_steady_ms() + LOAD_FILES_WAIT_MS;
	struct pollfd waits[] = {
		{.fd = sock, .events = POLLIN},
		{.fd = connection_fd(work->connection), .events = POLLIN},
	};
	int r = 0;

	*ret = (struct handed){.folder = folder};
	while (r == 0) {
		uint64_t now = clock_steady_ms();

		r = work_advance(0, work);
		if (r < 0)
			r = work_stopped(work, r, error);
		else if ((r = handed_receive_packet(sock, ret, error)) == 0 && now >= deadline)
			r = error_set(error, -ETIMEDOUT, "load again",
				      "the process that began the load passed no files within %d s",
				      LOAD_FILES_WAIT_MS / 1000);
		else if (r == 0 && poll(waits, 2, (int)(deadline - now)) < 0 && errno != EINTR)
			r = error_set(error, -errno, NULL, "poll: %s", strerror(errno));
	}
	if (r < 0)
		handed_close(ret);
	return r < 0 ? r : 0;
}

void handed_close(struct handed *handed)
{
	while (handed->count > 0) {
		handed->count--;
		free(handed->names[handed->count]);
		close(handed->fds[handed->count]);
	}
}

int handed_open(const struct handed *handed, const char *path, int *ret_fd, struct error *error)
{
	const size_t folder = strlen(handed->folder);
	const char *name = strncmp(path, handed->folder, folder) == 0 ? path + folder : path;
	size_t i = 0;

	name += *name == '/';
	while (i < handed->count && strcmp(handed->names[i], name) != 0)
		i++;
	if (i == handed->count)
		return error_set(error, -ENOENT, "pass it too", "%s is none of the files that were passed",
				 path);
	*ret_fd = fcntl(handed->fds[i], F_DUPFD_CLOEXEC, 0);
	return *ret_fd < 0 ? error_set(error, -errno, NULL, "%s: %s", path, strerror(errno)) : 0;
}
