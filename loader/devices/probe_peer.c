/* The second process of a probe: it gets memory as a worker does, maps and reads it. */
#include "probe.h"

#include "../../proto/wire/packet.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* ---- the first process ---- */

static int spawn(int sock, int *ret_pid)
{
	char program[] = "gpuwm-loader", probe[] = "--probe", option[] = "--fd", number[16];
	char *arguments[] = {program, probe, option, number, NULL};

	snprintf(number, sizeof(number), "%d", sock);
	return -posix_spawn(ret_pid, "/proc/self/exe", NULL, NULL, arguments, environ);
}

int probe_peer_start(struct probe_peer *ret, struct error *error)
{
	int pair[2], r = 0;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return error_set(error, -errno, NULL, "no pair of sockets for the second process: %s",
				 strerror(errno));
	if (fcntl(pair[1], F_SETFD, 0) < 0)
		r = -errno;
	if (r == 0)
		r = spawn(pair[1], &ret->pid);
	close(pair[1]);
	if (r == 0) {
		ret->sock = pair[0];
		return 0;
	}
	close(pair[0]);
	return error_set(error, r, NULL, "the second process can't be started: %s", strerror(-r));
}

void probe_peer_end(struct probe_peer *peer)
{
	close(peer->sock);
	kill(peer->pid, SIGKILL);
	waitpid(peer->pid, NULL, WNOHANG);
}

/* Waits for a packet, and takes it. 1, 0: the other side is gone, or an errno. */
static int probe_receive(int sock, bool take_fds, struct packet *packet)
{
	struct pollfd wait = {.fd = sock, .events = POLLIN};
	int r;

	do {
		poll(&wait, 1, -1);
		r = packet_receive(sock, take_fds, packet);
	} while (r == -EAGAIN || r == -EINTR);
	return r;
}

int probe_peer_ask(struct probe_peer *peer, const struct probe_request *request, int fd, struct error *error)
{
	struct packet packet = {.data = malloc(PACKET_BYTES_MAX + 1)};
	int r = packet.data ? 0 : -ENOMEM;

	if (r == 0)
		r = packet_send(peer->sock, request, sizeof(*request), &fd, fd >= 0);
	if (r == 0)
		r = probe_receive(peer->sock, false, &packet);
	if (r == 1 && packet.bytes == sizeof(*error)) {
		memcpy(error, packet.data, sizeof(*error));
		r = error->code;
	} else {
		r = error_set(error, r < 0 ? r : -ECONNRESET, "see the kernel's log (dmesg)",
			      "the second process ended before it answered%s%s", r < 0 ? ": " : "",
			      r < 0 ? strerror(-r) : "");
	}
	free(packet.data);
	return r;
}

/* ---- the second process ---- */

static int read_shared(const struct memory_device *device, int fd, uint64_t bytes, struct error *error)
{
	struct memory_segment segment = {.fd = -1};
	int r = device->ops->import(device, fd, bytes, true, &segment, error);

	if (r < 0)
		return r;
	r = device->ops->map(device, &segment, MEMORY_READ, error);
	if (r == 0)
		r = probe_compare(device, segment.address, error);
	device->ops->release(device, &segment);
	return r;
}

static int probe_answer(const struct probe_request *request, int fd, struct error *error)
{
	struct memory_device device;
	int r = memory_device_open(request->device, &device, error);

	if (r == 0)
		r = device.ops->enter(&device, error);
	if (r < 0)
		return r;
	r = request->is_ipc ? probe_ipc_read(&device, &request->handle, error)
			    : read_shared(&device, fd, request->bytes, error);
	device.ops->leave(&device);
	return r;
}

static int answer_packet(int sock, struct packet *packet)
{
	struct probe_request request;
	struct error error = {0};
	int fd = -1, r = 0;

	if (packet->bytes != sizeof(request))
		return -EPROTO;
	memcpy(&request, packet->data, sizeof(request));
	if (!request.is_ipc)
		r = packet_take_fd(packet, 0, &fd);
	if (r < 0)
		error_set(&error, r, "look for a security module that forbids it",
			  "the descriptor did not arrive in the second process");
	else if (probe_answer(&request, fd, &error) == 0)
		error.code = 0;
	if (fd >= 0)
		close(fd);
	return packet_send(sock, &error, sizeof(error), NULL, 0);
}

int probe_peer_run(int sock)
{
	struct packet packet = {.data = malloc(PACKET_BYTES_MAX + 1)};
	int r = packet.data ? 1 : -ENOMEM;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (r == 1) {
		r = probe_receive(sock, true, &packet);
		if (r == 1)
			r = answer_packet(sock, &packet) < 0 ? -EPIPE : 1;
		packet_drop(&packet);
	}
	free(packet.data);
	return r;
}
