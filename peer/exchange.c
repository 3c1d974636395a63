#include "exchange.h"

#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LENGTH_BYTES 4

void peer_message_clear(struct peer_message *message)
{
	message_clear(&message->message);
	free(message->bytes);
	*message = (struct peer_message){0};
}

/* ---- sending ---- */

int peer_send(struct link *link, struct message_writer *w, struct error *error)
{
	uint32_t length = htole32((uint32_t)w->buffer.size);
	int r = message_finish(w);

	if (r < 0)
		error_set(error, r, NULL, "%s: a message could not be made: %s", link_peer(link), strerror(-r));
	else
		r = link_write(link, &length, LENGTH_BYTES, LINK_SILENCE_MS, error);
	if (r == 0)
		r = link_write(link, w->buffer.data, w->buffer.size, LINK_SILENCE_MS, error);
	message_writer_clear(w);
	return r;
}

/* ---- receiving ---- */

static int wrong(const struct link *link, const char *why, struct error *error)
{
	return error_set(error, -EPROTO, NULL, "%s sent what is no message: %s", link_peer(link), why);
}

static int read_body(struct link *link, size_t bytes, struct peer_message *ret, struct error *error)
{
	const char *why;
	int r;

	ret->bytes = malloc(bytes);
	if (!ret->bytes)
		return error_set(error, -ENOMEM, NULL, "out of memory");
	r = link_read(link, ret->bytes, bytes, LINK_SILENCE_MS, error);
	if (r == -ENOLINK)
		r = error_set(error, -ECONNRESET, NULL, "%s", error->message);
	if (r < 0)
		return r;
	r = message_read(ret->bytes, bytes, &ret->message, &why);
	if (r == -ENOMEM)
		return error_set(error, r, NULL, "out of memory");
	return r < 0 ? wrong(link, why, error) : 0;
}

int peer_receive(struct link *link, size_t bytes_max, uint64_t first_ms, struct peer_message *ret,
		 struct error *error)
{
	struct peer_message message = {0};
	uint32_t length;
	int r = link_read(link, &length, LENGTH_BYTES, first_ms, error);

	if (r < 0)
		return r;
	length = le32toh(length);
	if (length == 0 || length > bytes_max)
		return error_set(error, -EPROTO, NULL, "%s sent a message of %u bytes; 1 to %zu are taken",
				 link_peer(link), length, bytes_max);
	r = read_body(link, length, &message, error);
	if (r < 0)
		peer_message_clear(&message);
	else
		*ret = message;
	return r;
}

/* ---- asking ---- */

int peer_told_code(int code)
{
	static const int own[] = {-ENOMEM, -EMFILE, -ENFILE, -ECANCELED, -ENOTRECOVERABLE};

	for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++) {
		if (code == own[i])
			return -EIO;
	}
	return code;
}

static int read_answer(const struct link *link, uint64_t id, const struct message_form *form,
		       const struct message *answer, void *result, struct error *error)
{
	struct error why;

	if (answer->type != MESSAGE_RESPONSE || !answer->has_id || answer->id != id)
		return wrong(link, "it is no answer to the request", error);
	if (answer->error.code < 0)
		return error_set(error, peer_told_code(answer->error.code), answer->error.detail, "%s: %s",
				 link_peer(link), answer->error.message);
	if (record_read(form->result, answer, result, &why) < 0)
		return wrong(link, why.message, error);
	return 0;
}

int peer_call(struct link *link, const struct message_form *form, const void *params, void *result,
	      struct peer_message *ret, struct error *error)
{
	struct peer_message answer;
	struct message_writer w;
	int r;

	/* One request at a time: the number says only that the answer is one. */
	message_writer_init(&w, PEER_MESSAGE_BYTES_MAX);
	message_request(&w, 1, form->name);
	record_put(&w, form->params, params);
	message_end(&w);
	r = peer_send(link, &w, error);
	if (r == 0)
		r = peer_receive(link, PEER_MESSAGE_BYTES_MAX, LINK_SILENCE_MS, &answer, error);
	if (r == -ENOLINK)
		r = error_set(error, -ECONNRESET, NULL, "%s", error->message);
	if (r < 0)
		return r;
	r = read_answer(link, 1, form, &answer.message, result, error);
	if (r < 0)
		peer_message_clear(&answer);
	else
		*ret = answer;
	return r;
}

int peer_greet(struct link *link, const char *program, struct peer_hello_result *ret_hello,
	       struct peer_message *ret, struct error *error)
{
	char node[HOST_NAME_MAX + 1] = "";
	struct peer_hello_params params = {PEER_PROTOCOL_MIN, PEER_PROTOCOL_MAX, node, program};
	int r;

	gethostname(node, sizeof(node) - 1);
	r = peer_call(link, &form_peer_hello, &params, ret_hello, ret, error);
	if (r < 0)
		return r;
	if (ret_hello->protocol >= PEER_PROTOCOL_MIN && ret_hello->protocol <= PEER_PROTOCOL_MAX)
		return 0;
	r = error_set(error, -EPROTONOSUPPORT, NULL,
		      "%s (%s) speaks protocol %llu; this program speaks %d to %d", link_peer(link),
		      ret_hello->program, (unsigned long long)ret_hello->protocol, PEER_PROTOCOL_MIN,
		      PEER_PROTOCOL_MAX);
	peer_message_clear(ret);
	return r;
}
