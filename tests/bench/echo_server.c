/* The floor for gpuwmd: a bare libuv server that answers every packet with a
 * small packet and one descriptor, and does nothing else.
 *
 *   echo_server SOCKET
 */
#include "bench.h"

#include <sys/mman.h>
#include <uv.h>

#define ANSWER_BYTES 200 /* about what get_handles answers */

static uint8_t buffer[PACKET_BYTES_MAX + 1];
static uint8_t answer[ANSWER_BYTES];
static int memory;

static void on_closed(uv_handle_t *handle)
{
	free(handle);
}

static void client_end(uv_poll_t *client)
{
	int sock = (int)(intptr_t)client->data;

	uv_poll_stop(client);
	close(sock);
	uv_close((uv_handle_t *)client, on_closed);
}

static void on_readable(uv_poll_t *client, int status, int events)
{
	struct packet packet = {.data = buffer};
	int sock = (int)(intptr_t)client->data;

	(void)events;
	if (status < 0 || packet_receive(sock, false, &packet) != 1 ||
	    packet_send(sock, answer, sizeof(answer), &memory, 1) < 0)
		client_end(client);
}

static void on_connection(uv_poll_t *listener, int status, int events)
{
	int sock = accept4((int)(intptr_t)listener->data, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	uv_poll_t *client = sock < 0 ? NULL : malloc(sizeof(*client));

	(void)status;
	(void)events;
	if (!client)
		return;
	client->data = (void *)(intptr_t)sock;
	if (uv_poll_init(listener->loop, client, sock) < 0 ||
	    uv_poll_start(client, UV_READABLE, on_readable) < 0)
		DIE("uv_poll");
}

int main(int argc, char **argv)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	uv_poll_t listener;
	int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (argc != 2)
		DIE("usage: echo_server SOCKET");
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", argv[1]);
	memory = memfd_create("echo", MFD_CLOEXEC);
	if (memory < 0 || sock < 0 || bind(sock, (struct sockaddr *)&address, sizeof(address)) < 0 ||
	    listen(sock, SOMAXCONN) < 0)
		DIE("listen on %s: %s", argv[1], strerror(errno));
	listener.data = (void *)(intptr_t)sock;
	if (uv_poll_init(uv_default_loop(), &listener, sock) < 0 ||
	    uv_poll_start(&listener, UV_READABLE, on_connection) < 0)
		DIE("uv_poll");
	return uv_run(uv_default_loop(), UV_RUN_DEFAULT);
}
