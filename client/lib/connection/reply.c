#include "connection.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static void drop_in_child(void *object)
{
	struct reply *reply = object;

	packet_drop(&reply->packet);
}

void reply_clear(struct reply *reply)
{
	message_clear(&reply->message);
	fork_lock();
	packet_drop(&reply->packet);
	fork_unwatch(&reply->hook);
	fork_unlock();
	free(reply->packet.data);
	if (reply->body)
		munmap(reply->body, reply->body_bytes);
	*reply = (struct reply){0};
}

int reply_receive(int sock, uint8_t *buffer, struct reply *ret)
{
	int r;

	*ret = (struct reply){.packet.data = buffer};
	/* No child is made before it would close what arrives. */
	fork_lock();
	r = packet_receive(sock, true, &ret->packet);
	/* The kernel tells ECONNRESET before packets that are queued, once: they
	 * may say why the peer left. At a true end the second call reads 0 too. */
	if (r == 0)
		r = packet_receive(sock, true, &ret->packet);
	if (ret->packet.fd_count > 0)
		fork_watch(&ret->hook, drop_in_child, ret);
	fork_unlock();
	return r;
}

int reply_decode(struct reply *reply, struct error *error)
{
	struct packet *packet = &reply->packet;
	const uint8_t *received = packet->data;
	const char *why = "";
	int r = 0;

	if (packet->fds_cut)
		r = error_set(error, -EMFILE, "raise the limit of open files (RLIMIT_NOFILE, ulimit -n)",
			      "this process has no room for the descriptors of a reply");
	else if (packet->cut)
		r = error_set(error, -EPROTO, NULL, "the peer sent a packet above %d bytes", PACKET_BYTES_MAX);
	packet->data = r == 0 ? malloc(packet->bytes + 1) : NULL;
	if (r == 0 && !packet->data)
		r = error_set(error, -ENOMEM, NULL, "out of memory for a reply of %zu bytes", packet->bytes);
	if (r == 0) {
		memcpy(packet->data, received, packet->bytes);
		r = message_read(packet->data, packet->bytes, &reply->message, &why);
		if (r < 0)
			error_set(error, r, NULL, "the peer sent a packet that is no valid message: %s", why);
	}
	if (r < 0)
		reply_clear(reply);
	return r;
}

/* Maps a memfd, which must be sealed and of that many bytes at least. */
static int body_map(struct reply *reply, int fd, uint64_t bytes, struct error *error)
{
	const int seals = F_SEAL_WRITE | F_SEAL_SHRINK;
	int have = fcntl(fd, F_GET_SEALS);
	struct stat st;
	void *body;

	if (have < 0 || (have & seals) != seals || fstat(fd, &st) < 0 || (uint64_t)st.st_size < bytes)
		return error_set(error, -EPROTO, NULL,
				 "the memfd of a large result is not sealed or too short");
	body = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
	if (body == MAP_FAILED)
		return error_set(error, -ENOMEM, NULL, "no room to map a result of %zu bytes", (size_t)bytes);
	reply->body = body;
	reply->body_bytes = bytes;
	return 0;
}

/* The mapped body takes the place of the answer's own. */
static int body_read(struct reply *reply, struct error *error)
{
	struct message body = {0};
	const char *why = "";
	int r = message_read_body(reply->body, reply->body_bytes, &body, &why);

	if (r < 0)
		return error_set(error, r, NULL, "a large result is no valid map: %s", why);
	body.type = MESSAGE_RESPONSE;
	body.id = reply->message.id;
	body.has_id = true;
	message_clear(&reply->message);
	reply->message = body;
	return 0;
}

int reply_open_body(struct reply *reply, struct error *error)
{
	uint64_t position, bytes;
	struct fields f;
	int fd, r;

	fields_of(&f, reply->message.body);
	if (!fields_have(&f, "body"))
		return 0;
	position = fields_u64(&f, "body");
	bytes = fields_u64(&f, "bytes");
	if (f.error.code || bytes == 0 || bytes > MESSAGE_BODY_MAX ||
	    packet_take_fd(&reply->packet, position, &fd) < 0)
		return error_set(error, -EPROTO, NULL, "a large result came without its descriptor");
	r = body_map(reply, fd, bytes, error);
	close(fd);
	return r < 0 ? r : body_read(reply, error);
}

int reply_read(const struct reply *reply, const struct message_form *form, void *ret, struct error *error)
{
	struct error why;
	int r = record_read(form->result, &reply->message, ret, &why);

	if (r == 0)
		return 0;
	return error_set(error, r == -ENOMEM ? r : -EPROTO, NULL, "%s: %s", form->name, why.message);
}
