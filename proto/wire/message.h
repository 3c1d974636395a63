/* MessagePack-RPC on msgpack-c: envelopes, a writer, and a reader with sticky
 * errors behind a bounded scan.
 *
 *   request       [0, id, method, [params]]       params: a map
 *   response      [1, id, error, result]          error: nil or {code, message, detail}
 *   notification  [2, method, [params]]
 */
#ifndef GPUWM_PROTO_MESSAGE_H
#define GPUWM_PROTO_MESSAGE_H

#include "../../base/errors.h"
#include "../names.h"

/* The size of a usual message; the buffer grows by doubling. glibc keeps no blocks of more than
 * 1,032 bytes at hand. */
#define MSGPACK_SBUFFER_INIT_SIZE 1000
#include <msgpack.h>

/* ---- writing ---------------------------------------------------------- */

/* Memory for messages that is allocated in advance. One writer at a time borrows it. */
struct message_memory {
	char *data;
	size_t bytes;
	bool lent;
};

/* Builds one message. Errors are sticky: write everything, then ask message_finish once. The writer
 * counts the entries of each container. Misuse is -EINVAL: a key in an array or none in a map, more
 * entries or levels than the limits allow, or something after the end. */
struct message_writer {
	msgpack_sbuffer buffer;
	int error; /* 0, -ENOMEM, -EMSGSIZE (above `limit`), -EINVAL */
	size_t limit;
	uint64_t id; /* of message_request */
	unsigned depth;
	struct {
		size_t header; /* where the writer puts the count at the end */
		uint32_t count;
	} open[MESSAGE_DEPTH_MAX];
	struct message_memory *borrowed; /* the owner of the buffer; NULL: the writer itself */
};

/* Makes an empty writer that holds up to `limit` bytes. The caller ends it with
 * message_writer_clear. */
void message_writer_init(struct message_writer *w, size_t limit);
/* Makes an empty writer with memory that was allocated in advance. If no other writer has borrowed
 * `memory`, this one borrows it until message_writer_clear, and needs no allocation for a message
 * that fits. A larger message moves to memory of its own. */
void message_writer_borrow(struct message_writer *w, size_t limit, struct message_memory *memory);
void message_writer_clear(struct message_writer *w);

/* Each of these begins an envelope and opens its params or result map; message_end closes it. A
 * response with an error has no result and is complete at once. Its id may be NULL, if the id of
 * the request could not be read. */
void message_request(struct message_writer *w, uint64_t id, const char *method);
void message_response(struct message_writer *w, uint64_t id);
void message_response_error(struct message_writer *w, const uint64_t *id, const struct error *error);
void message_notification(struct message_writer *w, const char *method);

/* These add an entry to the open container. key is NULL for an element of an array. In an empty
 * writer message_begin_map and message_begin_array begin a bare map or array without an
 * envelope. */
void message_put_u64(struct message_writer *w, const char *key, uint64_t value);
void message_put_i64(struct message_writer *w, const char *key, int64_t value);
void message_put_bool(struct message_writer *w, const char *key, bool value);
/* text NULL: nil */
void message_put_text(struct message_writer *w, const char *key, const char *text);
void message_put_hex128(struct message_writer *w, const char *key, const uint8_t bytes[16]);
/* adds a whole value, as a writer wrote it before */
void message_put_raw(struct message_writer *w, const char *key, const void *data, size_t bytes);
/* adds a value that was read */
void message_put_object(struct message_writer *w, const char *key, const msgpack_object *value);
void message_put_error(struct message_writer *w, const char *key, const struct error *error);
void message_begin_map(struct message_writer *w, const char *key);
void message_begin_array(struct message_writer *w, const char *key);
void message_end(struct message_writer *w);

/* Returns where the map of the params or of the result begins, and sets *ret_bytes to its length. The
 * message must be whole and have such a map. The bytes stay the writer's. */
const void *message_map(const struct message_writer *w, size_t *ret_bytes);

/* A place in a message whose outermost map is open and has no other container open. */
struct message_mark {
	size_t bytes;
	uint32_t count;
};
struct message_mark message_mark(const struct message_writer *w);
/* Forgets what was written since the mark. If the outermost map was closed, it is open again. */
void message_rewind(struct message_writer *w, struct message_mark mark);

/* Returns 0 if the message is whole and every container is closed, else the sticky error. It is
 * -EINVAL if a container was left open or nothing was written. */
int message_finish(struct message_writer *w);

/* ---- reading ---------------------------------------------------------- */

enum message_type { MESSAGE_REQUEST, MESSAGE_RESPONSE, MESSAGE_NOTIFICATION };

/* A decoded packet. Its texts point into the packet's bytes, which must stay as long as it does. */
struct message {
	enum message_type type;
	uint64_t id;
	bool has_id; /* false for the response to a request whose id could not be read */
	char method[32]; /* "" in responses; a longer name is cut, and so is unknown */
	struct error error; /* of a response */
	const msgpack_object *body; /* params or result, a map; NULL for nil */
	msgpack_zone *zone;
};

/* Decodes one message of exactly `bytes` bytes. Before msgpack-c allocates anything, a scan checks
 * counts against the bytes that are left, the depth, the sizes of maps, duplicate keys, that keys
 * are texts (whether they are UTF-8 or not), and that nothing follows. With the search for fields
 * these are three passes: a parser of our own with one pass would save 2 to 4 % of a request's
 * processor time (docs/benchmarks.md).
 *
 * Returns 0 and sets *ret, for message_clear. Fails with -EPROTO and sets *ret_why. If the id could
 * be read, ret->has_id and ret->id are set even then, so that the refusal can name it. Fails with
 * -ENOMEM. */
int message_read(const void *data, size_t bytes, struct message *ret, const char **ret_why);
/* Decodes a message for gpuwmd, whose peers are not trusted. It also fails with -EPROTO if the
 * message has more than MESSAGE_ELEMENTS_MAX keys and values. */
int message_read_bounded(const void *data, size_t bytes, struct message *ret, const char **ret_why);
void message_clear(struct message *m);

/* Decodes a bare map without an envelope, the body memfd of a large result, of at most
 * MESSAGE_BODY_MAX bytes. It makes the same checks. The map is in ret->body. */
int message_read_body(const void *data, size_t bytes, struct message *ret, const char **ret_why);

/* The bounded scan of a message before msgpack-c sees a byte of it. It checks counts against the
 * bytes that are left, the depth, the sizes of maps, and keys. It allocates nothing, and its time
 * is linear in `bytes` for any input.
 *
 * Returns 0 if `data` is exactly one well-formed value with at most `elements_max` elements. Each
 * value, each key and each container is an element. Otherwise fails with -EPROTO and sets
 * *ret_why. */
#define MESSAGE_ELEMENTS_ANY UINT64_MAX
int message_scan(const void *data, size_t bytes, uint64_t elements_max, const char **ret_why);

/* Reads the fields of a map. Errors are sticky: read all fields, then check fields.error once.
 * Unknown keys are skipped. */
struct fields {
	const msgpack_object *map;
	struct error error;
};

/* Begins to read a map. NULL counts as an empty map; any other type is an error. */
void fields_of(struct fields *f, const msgpack_object *map);
/* Returns the value of a key, or NULL if it is missing or nil. */
const msgpack_object *fields_find(const struct fields *f, const char *key);
/* Sets the error: the key, and what is wrong with it ("is no text"). Keeps an error that was set before. */
void fields_wrong(struct fields *f, const char *key, const char *what);
/* whether the key is there and not nil */
bool fields_have(const struct fields *f, const char *key);

/* For required keys: if the key is missing or has a wrong type, the error is -EINVAL and names the
 * key. */
uint64_t fields_u64(struct fields *f, const char *key);
/* Copies a text into buf[size], with a terminating zero. It may be empty. These are errors: a zero
 * byte inside, bytes that are not UTF-8, and a text that does not fit (the message names the
 * limit). */
void fields_text(struct fields *f, const char *key, char *buf, size_t size);
void fields_hex128(struct fields *f, const char *key, uint8_t ret_bytes[16]);
/* Returns an array and its count, or NULL with a count of 0 on an error. */
const msgpack_object *fields_array(struct fields *f, const char *key, uint32_t *ret_count);
const msgpack_object *fields_map(struct fields *f, const char *key);

/* For optional keys: if the key is missing or nil, the result is `otherwise`. A wrong type is an
 * error. */
uint64_t fields_u64_or(struct fields *f, const char *key, uint64_t otherwise);
int64_t fields_i64_or(struct fields *f, const char *key, int64_t otherwise);
bool fields_bool_or(struct fields *f, const char *key, bool otherwise);
void fields_text_or(struct fields *f, const char *key, char *buf, size_t size, const char *otherwise);

/* Reads an error that message_put_error wrote. Returns false if the key is missing or nil. */
bool fields_error(struct fields *f, const char *key, struct error *ret);

/* Returns whether the element is a text of at most `limit` bytes without a zero byte. If not, the
 * error is set. fields_copy_text copies such a text into buf, with a terminating zero; if it is not
 * UTF-8, the error is set and buf is empty. */
bool fields_is_text(struct fields *f, const msgpack_object *element, const char *key, uint64_t limit);
void fields_copy_text(struct fields *f, const msgpack_object *element, const char *key, char *buf);

/* Reads one element of an array as a text. Errors stick to *f. */
void fields_text_at(struct fields *f, const msgpack_object *element, const char *key, char *buf, size_t size);

#endif
