/* MessagePack-RPC on msgpack-c: envelopes, a writer, and a reader with sticky
 * errors behind a bounded scan.
 *
 *   request       [0, id, method, [params]]       params: a map
 *   response      [1, id, error, result]          error: nil or {code, message, detail}
 *   notification  [2, method, [params]]
 */
#ifndef GPUWM_PROTO_MESSAGE_H
#define GPUWM_PROTO_MESSAGE_H

#include "errors.h"
#include "names.h"

/* A usual message; it grows by doubling. Above 1,032 bytes glibc has no block at hand. */
#define MSGPACK_SBUFFER_INIT_SIZE 1000
#include <msgpack.h>

/* ---- writing ---------------------------------------------------------- */

/* Memory for a message that is allocated in advance. One writer at a time borrows it. */
struct message_memory {
	char *data;
	size_t bytes;
	bool lent;
};

/* Builds one message. Errors are sticky: write everything, then ask once.
 * Containers count their entries themselves. Misuse is -EINVAL: a key in an array
 * or none in a map, a map or a depth above the limits, something after the end. */
struct message_writer {
	msgpack_sbuffer buffer;
	int error; /* 0, -ENOMEM, -EMSGSIZE (above `limit`), -EINVAL */
	size_t limit;
	uint64_t id; /* of message_request */
	unsigned depth;
	struct {
		size_t header; /* where the count is patched in */
		uint32_t count;
	} open[MESSAGE_DEPTH_MAX];
	struct message_memory *borrowed; /* the buffer's; NULL: the buffer is the writer's own */
};

/* An empty writer that holds up to `limit` bytes. */
void message_writer_init(struct message_writer *w, size_t limit);
/* The same, with memory in advance. If no other writer has borrowed `memory`, this one borrows it until
 * message_writer_clear: a message that fits needs no allocation. A larger one moves to memory of its own. */
void message_writer_borrow(struct message_writer *w, size_t limit, struct message_memory *memory);
void message_writer_clear(struct message_writer *w);

/* Each begins an envelope and opens its params or result map; close it with
 * message_end. A response with an error has no result and is complete at once;
 * id may be NULL there: the request's own could not be read. */
void message_request(struct message_writer *w, uint64_t id, const char *method);
void message_response(struct message_writer *w, uint64_t id);
void message_response_error(struct message_writer *w, const uint64_t *id, const struct error *error);
void message_notification(struct message_writer *w, const char *method);

/* key NULL: an element of the open array. In an empty writer the begins make a
 * bare map or array, without an envelope. */
void message_put_u64(struct message_writer *w, const char *key, uint64_t value);
void message_put_i64(struct message_writer *w, const char *key, int64_t value);
void message_put_bool(struct message_writer *w, const char *key, bool value);
void message_put_text(struct message_writer *w, const char *key, const char *text); /* NULL: nil */
void message_put_hex128(struct message_writer *w, const char *key, const uint8_t bytes[16]);
/* A whole value as a writer wrote it before. */
void message_put_raw(struct message_writer *w, const char *key, const void *data, size_t bytes);
void message_put_error(struct message_writer *w, const char *key, const struct error *error);
void message_begin_map(struct message_writer *w, const char *key);
void message_begin_array(struct message_writer *w, const char *key);
void message_end(struct message_writer *w);

/* Returns where the params' or the result's map begins, and sets *ret_bytes to its length. Only of a message that is whole and
 * has such a map. The bytes stay the writer's. */
const void *message_map(const struct message_writer *w, size_t *ret_bytes);

/* A place in a message whose outermost map is open and has no other container open. */
struct message_mark {
	size_t bytes;
	uint32_t count;
};
struct message_mark message_mark(const struct message_writer *w);
/* Forgets what was written since the mark, and opens the outermost map again if it was closed. */
void message_rewind(struct message_writer *w, struct message_mark mark);

/* 0 when the message is whole and every container is closed, else the sticky
 * error (-EINVAL: something was left open, or nothing was written). */
int message_finish(struct message_writer *w);

/* ---- reading ---------------------------------------------------------- */

enum message_type { MESSAGE_REQUEST, MESSAGE_RESPONSE, MESSAGE_NOTIFICATION };

/* A decoded packet. Its texts point into the packet's bytes, which must stay. */
struct message {
	enum message_type type;
	uint64_t id;
	bool has_id; /* a response to something unreadable has none */
	char method[32]; /* "" in responses; a longer name is cut and so unknown */
	struct error error; /* responses */
	const msgpack_object *body; /* params or result: a map; NULL when nil */
	msgpack_zone *zone;
};

/* Decodes one message of exactly `bytes` bytes. The scan checks counts against
 * the bytes left, depth, map size, duplicate keys, UTF-8-agnostic text keys and
 * trailing bytes before msgpack-c allocates anything. -EPROTO with *ret_why
 * set; the id is still in ret->id/has_id where it could be read, so that the
 * refusal can be addressed. -ENOMEM. */
int message_read(const void *data, size_t bytes, struct message *ret, const char **ret_why);
/* The same for gpuwmd, whose peers are not trusted: a message of more than MESSAGE_ELEMENTS_MAX keys and
 * values is -EPROTO too. */
int message_read_bounded(const void *data, size_t bytes, struct message *ret, const char **ret_why);
void message_clear(struct message *m);

/* A bare map (the body memfd of a large result): same checks, no envelope,
 * limit MESSAGE_BODY_MAX. The result is in ret->body. */
int message_read_body(const void *data, size_t bytes, struct message *ret, const char **ret_why);

/* The fields of a map, read with sticky errors: read all, then check
 * fields.error once. Unknown keys are skipped. */
struct fields {
	const msgpack_object *map;
	struct error error;
};

/* map: NULL reads as empty; what is no map is an error. */
void fields_of(struct fields *f, const msgpack_object *map);
bool fields_have(const struct fields *f, const char *key); /* present and not nil */

/* Required: a missing key or a wrong type sets -EINVAL naming the key. */
uint64_t fields_u64(struct fields *f, const char *key);
/* Copies into buf[size], zero-terminated; embedded zeros, what is no UTF-8 and texts
 * that do not fit are errors; the last names the limit. Empty texts are allowed. */
void fields_text(struct fields *f, const char *key, char *buf, size_t size);
void fields_hex128(struct fields *f, const char *key, uint8_t ret_bytes[16]);
/* An array; NULL with count 0 on error. */
const msgpack_object *fields_array(struct fields *f, const char *key, uint32_t *ret_count);
const msgpack_object *fields_map(struct fields *f, const char *key);

/* Optional: the default where the key is missing or nil; a wrong type is an error. */
uint64_t fields_u64_or(struct fields *f, const char *key, uint64_t otherwise);
int64_t fields_i64_or(struct fields *f, const char *key, int64_t otherwise);
bool fields_bool_or(struct fields *f, const char *key, bool otherwise);
void fields_text_or(struct fields *f, const char *key, char *buf, size_t size, const char *otherwise);

/* An error as message_put_error wrote it; false where the key is missing or nil. */
bool fields_error(struct fields *f, const char *key, struct error *ret);

/* One element of an array as text; errors stick to *f. */
void fields_text_at(struct fields *f, const msgpack_object *element, const char *key, char *buf, size_t size);

#endif
