#include "message.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Types of containers whose counts the writer fills in when they are closed. */
#define MAP32 0xdf
#define ARRAY32 0xdd

void message_writer_init(struct message_writer *w, size_t limit)
{
	memset(w, 0, sizeof *w);
	msgpack_sbuffer_init(&w->buffer);
	w->limit = limit;
}

void message_writer_borrow(struct message_writer *w, size_t limit, struct message_memory *memory)
{
	message_writer_init(w, limit);
	if (memory->lent)
		return;
	memory->lent = true;
	w->borrowed = memory;
	w->buffer.data = memory->data;
	w->buffer.alloc = memory->bytes;
}

static void give_back(struct message_writer *w)
{
	w->borrowed->lent = false;
	w->borrowed = NULL;
	msgpack_sbuffer_init(&w->buffer);
}

void message_writer_clear(struct message_writer *w)
{
	if (w->borrowed)
		give_back(w);
	msgpack_sbuffer_destroy(&w->buffer);
	memset(w, 0, sizeof *w);
}

/* Copies what is written so far to memory of the writer's own, with room for `count` bytes more. */
static int move_out(struct message_writer *w, size_t count)
{
	const char *data = w->buffer.data;
	size_t size = w->buffer.size, bytes = 2 * (size + count);
	char *own = malloc(bytes);

	if (!own)
		return -ENOMEM;
	memcpy(own, data, size);
	give_back(w);
	w->buffer.data = own;
	w->buffer.size = size;
	w->buffer.alloc = bytes;
	return 0;
}

static int writer_append(void *data, const char *bytes, size_t count)
{
	struct message_writer *w = data;

	if (!w->error && w->buffer.size + count > w->limit)
		w->error = -EMSGSIZE;
	if (!w->error && w->borrowed && w->buffer.size + count > w->buffer.alloc)
		w->error = move_out(w, count);
	if (!w->error && msgpack_sbuffer_write(&w->buffer, bytes, count))
		w->error = -ENOMEM;
	return w->error ? -1 : 0;
}

static msgpack_packer packer(struct message_writer *w)
{
	msgpack_packer p;

	msgpack_packer_init(&p, w, writer_append);
	return p;
}

static void put_raw_text(struct message_writer *w, const char *text)
{
	msgpack_packer p = packer(w);
	size_t bytes = strlen(text);

	msgpack_pack_str(&p, bytes);
	msgpack_pack_str_body(&p, text, bytes);
}

static void misuse(struct message_writer *w)
{
	w->error = w->error ? w->error : -EINVAL;
}

static bool too_deep(const struct message_writer *w)
{
	unsigned envelope = 0; /* its arrays and maps around the outermost open container */

	if (w->open[0].header > 0)
		envelope = w->buffer.data[1] == MESSAGE_RESPONSE ? 1 : 2;
	return w->depth + envelope >= MESSAGE_DEPTH_MAX;
}

/* Counts an entry of the open container, and writes its key. */
static msgpack_packer entry(struct message_writer *w, const char *key)
{
	if (!w->error && w->depth == 0) {
		misuse(w);
	} else if (!w->error) {
		bool map = (uint8_t)w->buffer.data[w->open[w->depth - 1].header] == MAP32;

		if (++w->open[w->depth - 1].count > MESSAGE_MAP_MAX && map)
			misuse(w);
		if (map != (key != NULL))
			misuse(w);
	}
	if (key)
		put_raw_text(w, key);
	return packer(w);
}

static void writer_begin(struct message_writer *w, uint8_t mark)
{
	char header[5] = {(char)mark};

	if (w->error)
		return;
	if (w->depth > 0 && too_deep(w)) {
		misuse(w);
		return;
	}
	w->open[w->depth].header = w->buffer.size;
	w->open[w->depth].count = 0;
	w->depth++;
	writer_append(w, header, sizeof header);
}

/* Writes the fixed part of an envelope. The params of requests and notifications are an array of
 * one map; the result of a response is the map itself. */
static void begin_envelope(struct message_writer *w, size_t entries, int type)
{
	msgpack_packer p = packer(w);

	if (w->buffer.size > 0)
		misuse(w);
	msgpack_pack_array(&p, entries);
	msgpack_pack_int(&p, type);
}

static void begin_params(struct message_writer *w, const char *method)
{
	msgpack_packer p = packer(w);

	put_raw_text(w, method);
	msgpack_pack_array(&p, 1);
	writer_begin(w, MAP32);
}

void message_request(struct message_writer *w, uint64_t id, const char *method)
{
	msgpack_packer p = packer(w);

	begin_envelope(w, 4, 0);
	w->id = id;
	msgpack_pack_uint64(&p, id);
	begin_params(w, method);
}

void message_response(struct message_writer *w, uint64_t id)
{
	msgpack_packer p = packer(w);

	begin_envelope(w, 4, 1);
	msgpack_pack_uint64(&p, id);
	msgpack_pack_nil(&p);
	writer_begin(w, MAP32);
}

static void put_error_map(struct message_writer *w, const struct error *error)
{
	msgpack_packer p = packer(w);

	msgpack_pack_map(&p, 3);
	put_raw_text(w, "code");
	put_raw_text(w, error_name(error->code));
	put_raw_text(w, "message");
	put_raw_text(w, error->message);
	put_raw_text(w, "detail");
	put_raw_text(w, error->detail);
}

void message_response_error(struct message_writer *w, const uint64_t *id, const struct error *error)
{
	msgpack_packer p = packer(w);

	begin_envelope(w, 4, 1);
	if (id)
		msgpack_pack_uint64(&p, *id);
	else
		msgpack_pack_nil(&p);
	put_error_map(w, error);
	msgpack_pack_nil(&p);
}

void message_notification(struct message_writer *w, const char *method)
{
	begin_envelope(w, 3, 2);
	begin_params(w, method);
}

void message_put_u64(struct message_writer *w, const char *key, uint64_t value)
{
	msgpack_packer p = entry(w, key);

	msgpack_pack_uint64(&p, value);
}

void message_put_i64(struct message_writer *w, const char *key, int64_t value)
{
	msgpack_packer p = entry(w, key);

	msgpack_pack_int64(&p, value);
}

void message_put_bool(struct message_writer *w, const char *key, bool value)
{
	msgpack_packer p = entry(w, key);

	if (value)
		msgpack_pack_true(&p);
	else
		msgpack_pack_false(&p);
}

void message_put_text(struct message_writer *w, const char *key, const char *text)
{
	msgpack_packer p = entry(w, key);

	if (text)
		put_raw_text(w, text);
	else
		msgpack_pack_nil(&p);
}

void message_put_hex128(struct message_writer *w, const char *key, const uint8_t bytes[16])
{
	char text[VERSION_ID_TEXT];

	hex128_format(bytes, text);
	message_put_text(w, key, text);
}

void message_put_raw(struct message_writer *w, const char *key, const void *data, size_t bytes)
{
	entry(w, key);
	writer_append(w, data, bytes);
}

void message_put_object(struct message_writer *w, const char *key, const msgpack_object *value)
{
	msgpack_packer p = entry(w, key);

	msgpack_pack_object(&p, *value);
}

void message_put_error(struct message_writer *w, const char *key, const struct error *error)
{
	entry(w, key);
	if (!w->error && too_deep(w))
		misuse(w);
	put_error_map(w, error);
}

void message_begin_map(struct message_writer *w, const char *key)
{
	if (w->buffer.size > 0 || key)
		entry(w, key);
	writer_begin(w, MAP32);
}

void message_begin_array(struct message_writer *w, const char *key)
{
	if (w->buffer.size > 0 || key)
		entry(w, key);
	writer_begin(w, ARRAY32);
}

void message_end(struct message_writer *w)
{
	uint32_t count;
	char *header;

	if (w->depth == 0)
		misuse(w);
	if (w->error)
		return;
	w->depth--;
	count = w->open[w->depth].count;
	header = w->buffer.data + w->open[w->depth].header;
	for (int i = 4; i > 0; i--, count >>= 8)
		header[i] = (char)(count & 0xff);
}

const void *message_map(const struct message_writer *w, size_t *ret_bytes)
{
	*ret_bytes = w->buffer.size - w->open[0].header;
	return w->buffer.data + w->open[0].header;
}

struct message_mark message_mark(const struct message_writer *w)
{
	return (struct message_mark){.bytes = w->buffer.size, .count = w->open[0].count};
}

void message_rewind(struct message_writer *w, struct message_mark mark)
{
	if (w->error)
		return;
	w->buffer.size = mark.bytes;
	w->open[0].count = mark.count;
	w->depth = 1;
}

int message_finish(struct message_writer *w)
{
	if (w->depth > 0 || w->buffer.size == 0)
		misuse(w);
	return w->error;
}
