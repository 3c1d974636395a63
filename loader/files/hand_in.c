#include "../work.h"
#include "../../proto/wire/messages.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int hand_in_take(struct fields *f, struct packet *packet, struct part *ret)
{
	if (part_read(f, packet, ret) == 0 && packet->fd_count != ret->segment_count + 1)
		error_set(&f->error, -EBADMSG, "one for the index and one a segment",
			  "%zu descriptors came for %u segments", packet->fd_count, ret->segment_count);
	return f->error.code;
}

/* Sends the answer. If the publisher is gone, that fails, and it does not matter: its part is
 * checked all the same, and gpuwmd knows whether it committed. */
static void hand_in_answer(int publisher, const struct message *message, const struct error *error)
{
	struct message_writer w;

	message_writer_init(&w, PACKET_BYTES_MAX);
	if (error->code) {
		message_response_error(&w, message->has_id ? &message->id : NULL, error);
	} else {
		message_response(&w, message->id);
		message_end(&w);
	}
	if (message_finish(&w) == 0)
		packet_send(publisher, w.buffer.data, w.buffer.size, NULL, 0);
	message_writer_clear(&w);
}

static int hand_in_handle(int publisher, struct packet *packet, struct part *ret, struct error *error)
{
	struct message message = {0};
	const char *why = "";
	struct fields f;
	int r;

	if (packet->cut || packet->fds_cut) {
		r = error_set(error, -EPROTO, NULL, "the packet is above %d bytes or %d descriptors",
			      PACKET_BYTES_MAX, PACKET_FDS_MAX);
	} else if ((r = message_read(packet->data, packet->bytes, &message, &why)) < 0) {
		r = error_set(error, r, NULL, "the publisher sent no valid message: %s", why);
	} else if (message.type != MESSAGE_REQUEST) {
		r = error_set(error, -EPROTO, NULL, "the publisher sent no request");
	} else if (strcmp(message.method, form_hand_in.name) != 0) {
		r = error_set(error, -ENOSYS, "a checker takes one hand_in", "there is no method %s here",
			      message.method);
	} else {
		fields_of(&f, message.body);
		r = hand_in_take(&f, packet, ret);
		if (r < 0)
			*error = f.error;
	}
	hand_in_answer(publisher, &message, r < 0 ? error : &(struct error){0});
	message_clear(&message);
	return r;
}

/* Receives one packet if there is one. Returns 1, 0 or -errno. */
static int hand_in_receive_packet(int publisher, struct part *ret, struct error *error)
{
	struct packet packet = {.data = malloc(PACKET_BYTES_MAX + 1)};
	int r;

	if (!packet.data)
		return error_set(error, -ENOMEM, NULL, "out of memory");
	r = packet_receive(publisher, true, &packet);
	if (r == 0) {
		r = error_set(error, -ECANCELED, NULL,
			      "the publisher went away before it handed its memory in");
	} else if (r > 0) {
		r = hand_in_handle(publisher, &packet, ret, error);
		r = r < 0 ? r : 1;
	} else if (r == -EAGAIN || r == -EINTR) {
		r = 0;
	} else {
		error_set(error, -EIO, NULL, "receiving from the publisher failed: %s", strerror(-r));
		r = -EIO;
	}
	packet_drop(&packet);
	free(packet.data);
	return r;
}

int hand_in_receive(int publisher, struct work *work, struct part *ret, struct error *error)
{
	struct pollfd waits[] = {
		{.fd = publisher, .events = POLLIN},
		{.fd = connection_fd(work->connection), .events = POLLIN},
	};
	int r;

	part_init(ret);
	for (;;) {
		r = work_advance(0, work);
		if (r < 0)
			return work_stopped(work, r, error);
		r = hand_in_receive_packet(publisher, ret, error);
		if (r != 0)
			break;
		if (poll(waits, 2, -1) < 0 && errno != EINTR)
			return error_set(error, -errno, NULL, "poll: %s", strerror(errno));
	}
	if (r < 0)
		part_close(ret);
	return r < 0 ? r : 0;
}
