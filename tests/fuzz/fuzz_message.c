/* Mutates messages that are valid and reads them: fuzz_message [iterations [seed]].
 * Build it with the sanitizers. What is accepted must keep the rules, and what
 * the scan accepts msgpack-c must be able to unpack. */
#include "../../proto/wire/message.h"
#include "fuzz.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEEDS 9
#define ROOM 1024

static const uint8_t heads[] = {0x00, 0x7f, 0x80, 0x81, 0x8f, 0x90, 0x91, 0x93, 0x94, 0xa0, 0xa1, 0xbf,
				0xc0, 0xc1, 0xc2, 0xc4, 0xc7, 0xca, 0xcb, 0xcc, 0xcd, 0xce, 0xcf, 0xd0,
				0xd3, 0xd4, 0xd8, 0xd9, 0xda, 0xdb, 0xdc, 0xdd, 0xde, 0xdf, 0xff};

static struct {
	char bytes[ROOM];
	size_t count;
} seeds[SEEDS];
static void keep(struct message_writer *w, int seed)
{
	must(message_finish(w) == 0 && w->buffer.size <= ROOM, "a seed is no message");
	memcpy(seeds[seed].bytes, w->buffer.data, w->buffer.size);
	seeds[seed].count = w->buffer.size;
	message_writer_clear(w);
}

/* Of each form; the larger ones like a reply of get_handles and one of list. */
static void write_seed(int seed)
{
	static const uint8_t id[16] = {1, 2, 3};
	struct message_writer w;
	struct error error;

	message_writer_init(&w, ROOM);
	error_set(&error, -ENOENT, "see ls", "there is no such model");
	switch (seed) {
	case 0:
		message_request(&w, 1, "ping");
		break;
	case 1:
		message_request(&w, UINT64_MAX, "get_handles");
		message_put_text(&w, "ref", "llama@prod");
		message_put_i64(&w, "wait_ms", -1);
		break;
	case 2:
		message_response_error(&w, &(uint64_t){77}, &error);
		break;
	case 3:
		message_response_error(&w, NULL, &error);
		break;
	case 4:
		message_notification(&w, "event");
		message_put_error(&w, "error", &error);
		break;
	case 5: /* so many keys that the scan looks them up in a table */
		message_request(&w, 5, "ping");
		for (int i = 0; i < 40; i++) {
			char key[8];

			snprintf(key, sizeof(key), "k%d", i);
			message_put_u64(&w, key, 1);
		}
		break;
	default:
		message_response(&w, 300);
		message_put_hex128(&w, "version", id);
		message_begin_array(&w, "segments");
		for (int i = 0; i < seed; i++) {
			message_begin_map(&w, NULL);
			message_put_u64(&w, "fd", (uint64_t)i);
			message_put_u64(&w, "bytes", (uint64_t)i << 33);
			message_put_bool(&w, "last", i == 4);
			message_end(&w);
		}
		message_end(&w);
		break;
	}
	if (seed != 2 && seed != 3)
		message_end(&w);
	keep(&w, seed);
}

static size_t mutate(char *bytes, size_t count)
{
	size_t at = draw(count + 1), length;

	switch (draw(6)) {
	case 0: /* flip a bit */
		if (at < count)
			bytes[at] = (char)(bytes[at] ^ 1 << draw(8));
		return count;
	case 1: /* another head */
		if (at < count)
			bytes[at] = (char)heads[draw(sizeof(heads))];
		return count;
	case 2: /* a number that matters */
		if (at + 4 < count)
			memset(bytes + at, draw(2) ? 0xff : 0, 1 + draw(4));
		return count;
	case 3: /* cut */
		return draw(8) ? count : at;
	case 4: /* leave something out */
		length = draw(1 + (count - at < 8 ? count - at : 8));
		memmove(bytes + at, bytes + at + length, count - at - length);
		return count - length;
	default: /* say something twice */
		length = draw(1 + (count - at < 32 ? count - at : 32));
		if (count + length > ROOM)
			return count;
		memmove(bytes + at + length, bytes + at, count - at);
		return count + length;
	}
}

static void check_key(const msgpack_object *map, uint32_t position)
{
	const msgpack_object_str *key = &map->via.map.ptr[position].key.via.str;

	must(position < MESSAGE_MAP_MAX, "too large a map was accepted");
	must(map->via.map.ptr[position].key.type == MSGPACK_OBJECT_STR, "a key that is no text was accepted");
	for (uint32_t i = 0; i < position; i++) {
		const msgpack_object_str *other = &map->via.map.ptr[i].key.via.str;

		must(other->size != key->size || memcmp(other->ptr, key->ptr, key->size) != 0,
		     "a key that comes twice was accepted");
	}
}

static void check_value(const msgpack_object *o, unsigned depth)
{
	must(o->type != MSGPACK_OBJECT_EXT, "an extension was accepted");
	if (o->type == MSGPACK_OBJECT_ARRAY || o->type == MSGPACK_OBJECT_MAP)
		must(++depth <= MESSAGE_DEPTH_MAX, "too deep a message was accepted");
	for (uint32_t i = 0; o->type == MSGPACK_OBJECT_ARRAY && i < o->via.array.size; i++)
		check_value(&o->via.array.ptr[i], depth);
	for (uint32_t i = 0; o->type == MSGPACK_OBJECT_MAP && i < o->via.map.size; i++) {
		check_key(o, i);
		check_value(&o->via.map.ptr[i].val, depth);
	}
}

/* As a handler would: all of the kinds of fields, of the right type or not. */
static void read_fields(const msgpack_object *body)
{
	const msgpack_object *array;
	char text[16];
	uint8_t id[16];
	struct fields f, one;
	uint32_t count;

	fields_of(&f, body);
	fields_text_or(&f, "ref", text, sizeof(text), "");
	fields_i64_or(&f, "wait_ms", 0);
	fields_bool_or(&f, "last", false);
	fields_map(&f, "error");
	fields_hex128(&f, "version", id);
	array = fields_array(&f, "segments", &count);
	for (uint32_t i = 0; i < count; i++) {
		fields_of(&one, &array[i]);
		fields_u64(&one, "fd");
		fields_text(&one, "bytes", text, sizeof(text));
	}
}

/* An exact copy on the heap, so that a sanitizer sees one byte too far. */
static bool read_copy(const char *bytes, size_t count, bool bare)
{
	const unsigned around = bare ? 0 : 2;
	char *copy = malloc(count ? count : 1);
	const char *why = NULL;
	struct message m;
	int r;

	must(copy, "out of memory");
	memcpy(copy, bytes, count);
	r = bare ? message_read_body(copy, count, &m, &why) : message_read_bounded(copy, count, &m, &why);
	must(r == 0 || r == -EPROTO, "an error other than EPROTO");
	must(r == 0 || why, "refused without a reason");
	if (r == 0) {
		must(m.body || m.error.code < 0, "neither a body nor an error was accepted");
		must(memchr(m.method, 0, sizeof(m.method)), "a method without an end");
		if (m.body)
			check_value(m.body, m.type == MESSAGE_RESPONSE && !bare ? 1 : around);
		read_fields(m.body);
	}
	message_clear(&m);
	free(copy);
	return r == 0;
}

int main(int argc, char **argv)
{
	uint64_t iterations = fuzz_begin(argc, argv, 1000000), accepted = 0;
	char bytes[ROOM];

	for (int i = 0; i < SEEDS; i++) {
		write_seed(i);
		must(read_copy(seeds[i].bytes, seeds[i].count, false), "a seed was refused");
	}
	for (uint64_t i = 0; i < iterations; i++) {
		size_t which = draw(SEEDS), count = seeds[which].count;

		memcpy(bytes, seeds[which].bytes, count);
		for (uint64_t n = 1 + draw(6); n > 0; n--)
			count = mutate(bytes, count);
		accepted += read_copy(bytes, count, draw(8) == 0);
	}
	return fuzz_end(accepted, iterations);
}
