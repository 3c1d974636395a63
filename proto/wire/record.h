/* A record describes a map on the wire and the struct that holds it in memory: one row for each
 * key. Reading, writing and every check of a message come from its record. messages.h has the
 * records of all messages.
 *
 * A struct owns nothing. Numbers and truth values that are required, or have a default, are members.
 * Everything else is a pointer. In a struct that was read, pointers lead into the message that was
 * read, and are valid until message_clear. In a struct that is written, they lead wherever the
 * writer's data is. NULL means that the key is missing.
 *
 *   on the wire   member
 *   u64           uint64_t; const uint64_t * if it may be missing
 *   i64           int64_t
 *   bool          bool; const bool * if it may be missing
 *   text          const char *
 *   id            const struct version_id *, const struct digest *
 *   error         const struct error *
 *   map           const struct ... *, or no member: FIELD_OPEN_MAYBE
 *   array         struct { const ELEMENT *items; uint32_t count; }, or no member: FIELD_LOOP
 *                 struct { const ELEMENT *items; const struct error *const *errors; uint32_t count; }
 *                 if each element may be wrong by itself. The writer sets no errors.
 *   anything else a type of its own, with a codec
 *
 * Keys that several maps have stand in a record of their own, which each of these maps has as a member: FIELD_SPLICE.
 */
#ifndef GPUWM_PROTO_RECORD_H
#define GPUWM_PROTO_RECORD_H

#include "../index/digest.h"
#include "message.h"

/* The largest struct of a record: a reader that does not know the record has room for it. */
#define RECORD_BYTES_MAX 1024

enum record_type {
	RECORD_U64,
	RECORD_U32, /* an array's elements only: u64 on the wire, users and groups in memory */
	RECORD_I64,
	RECORD_BOOL,
	RECORD_TEXT,
	RECORD_ID,
	RECORD_ERROR,
	RECORD_MAP,
	RECORD_ARRAY,
	RECORD_LOOP, /* an array without a member, which its writer makes in a loop of its own */
	RECORD_OPEN, /* a map without a member, which its writer opens, since it has a loop */
	RECORD_CODEC,
	RECORD_SPLICE, /* a struct by value, whose keys stand in the map itself */
};

enum record_presence {
	RECORD_REQUIRED,
	RECORD_MAYBE, /* missing or nil: the pointer is NULL */
	RECORD_OR, /* missing or nil: the row's default. A value that equals it is not written. */
};

struct record;

/* How a type of its own is read and written. */
struct record_codec {
	const char *form; /* as docs/protocol.md writes it */
	/* Sets the member from the value of the key; NULL: it is missing, which is fine. Errors stick to *f. */
	void (*read)(struct fields *f, const char *key, const msgpack_object *value, msgpack_zone *zone,
		     void *ret);
	void (*put)(struct message_writer *w, const char *key, const void *member);
	/* Returns the place of the text that the member leads to. NULL: such a member leads nowhere. */
	const char **(*text)(void *member);
};

struct record_field {
	const char *key; /* of a splice: the name of the member, which is not on the wire */
	enum record_type type;
	enum record_type element; /* of an array or a loop */
	enum record_presence presence;
	size_t offset; /* of the member, or of an array's items */
	size_t count_offset; /* of an array's count */
	/* Of an array's errors. An element that is wrong does not make the message wrong, but has an error. 0: it does. */
	size_t errors_offset;
	uint64_t bytes; /* the most that a text may have, or each text of an array */
	uint32_t elements; /* the most that an array may have */
	int64_t least; /* of an i64 */
	uint64_t most; /* of a u64 */
	int64_t number; /* the default of a number or a truth value */
	const char *text; /* the default of a text */
	const struct record *record; /* of a map or a splice, or of each map in an array or a loop */
	const struct record_codec *codec;
};

struct record {
	const char *name; /* NULL: docs/protocol.md writes it out where it is used */
	size_t size; /* of the struct */
	const struct record_field *fields;
	size_t field_count;
	/* The keys that are written and read by hand beside the rows, as docs/protocol.md writes them. NULL: none. */
	const char *beside;
	/* What a row can't say. Called when all rows were read; sets *error and returns its code. NULL: nothing. */
	int (*check)(const void *value, struct error *error);
};

/* Reads the map of a message. Keys that the record does not have are skipped. Returns 0 and sets
 * *ret, a struct of the record. On failure *error tells the first thing that is wrong (-EINVAL, or
 * -ENOMEM); *ret then has what the rows before that one have read, and zeros for the others. */
int record_read(const struct record *record, const struct message *message, void *ret, struct error *error);

/* The same for a map inside the message whose memory is `zone`. */
int record_read_map(const struct record *record, const msgpack_object *map, msgpack_zone *zone, void *ret,
		    struct error *error);

/* Writes the keys of the record into the open map, whose other keys the caller writes. */
void record_put(struct message_writer *w, const struct record *record, const void *value);
/* Adds a whole map to the open container. key is NULL for an element of an array. */
void record_put_map(struct message_writer *w, const char *key, const struct record *record, const void *value);

/* Returns the row of the key, also in splices, or NULL. */
const struct record_field *record_row(const struct record *record, const char *key);

/* Returns the key of the first row that may be missing and that the struct has, also in splices, or NULL. Codecs do not count. */
const char *record_first_given(const struct record *record, const void *value);

/* Returns how many bytes an element of the row's array takes in memory. */
size_t record_element_size(const struct record_field *row);

/* Returns a copy of the struct with all that it leads to, in one block for free(). What a codec's member leads to is
 * copied only if it is a text. Returns NULL if there is no memory. */
void *record_copy(const struct record *record, const void *value);

/* ---- rows ------------------------------------------------------------- */

/* Evaluates to the place of a member. Does not compile unless the member's type is `wanted`. */
#define RECORD_PLACE(S, member, wanted)                                                                        \
	(offsetof(S, member) + 0 * sizeof(char[_Generic(((S *)0)->member, wanted : 1, default : -1)]))
#define RECORD_PLACE_OF_ID(S, member)                                                                          \
	(offsetof(S, member) + 0 * sizeof(char[_Generic(((S *)0)->member, const struct version_id * : 1,       \
							const struct digest * : 1, default                     \
							: -1)]))
#define RECORD_PLACE_OF_ITEMS(S, member, wanted)                                                               \
	.offset = RECORD_PLACE(S, member.items, wanted), .count_offset = RECORD_PLACE(S, member.count, uint32_t)

#define FIELD_U64(S, m)                                                                                        \
	{                                                                                                      \
		.key = #m, .type = RECORD_U64, .offset = RECORD_PLACE(S, m, uint64_t), .most = UINT64_MAX      \
	}
/* At most most_. */
#define FIELD_U64_TO(S, m, most_)                                                                              \
	{                                                                                                      \
		.key = #m, .type = RECORD_U64, .offset = RECORD_PLACE(S, m, uint64_t), .most = most_           \
	}
#define FIELD_U64_MAYBE(S, m)                                                                                  \
	{                                                                                                      \
		.key = #m, .type = RECORD_U64, .presence = RECORD_MAYBE,                                       \
		.offset = RECORD_PLACE(S, m, const uint64_t *), .most = UINT64_MAX                             \
	}
#define FIELD_U64_OR(S, m, otherwise, most_)                                                                   \
	{                                                                                                      \
		.key = #m, .type = RECORD_U64, .presence = RECORD_OR, .offset = RECORD_PLACE(S, m, uint64_t),  \
		.most = most_, .number = otherwise                                                             \
	}
#define FIELD_I64_OR(S, m, otherwise, least_)                                                                  \
	{                                                                                                      \
		.key = #m, .type = RECORD_I64, .presence = RECORD_OR, .offset = RECORD_PLACE(S, m, int64_t),   \
		.least = least_, .number = otherwise                                                           \
	}
/* How long a request may wait, in milliseconds; -1: for ever. */
#define FIELD_WAIT_MS(S) FIELD_I64_OR(S, wait_ms, 0, -1)
#define FIELD_BOOL(S, m)                                                                                       \
	{                                                                                                      \
		.key = #m, .type = RECORD_BOOL, .offset = RECORD_PLACE(S, m, bool)                             \
	}
#define FIELD_BOOL_MAYBE(S, m)                                                                                 \
	{                                                                                                      \
		.key = #m, .type = RECORD_BOOL, .presence = RECORD_MAYBE,                                      \
		.offset = RECORD_PLACE(S, m, const bool *)                                                     \
	}
#define FIELD_BOOL_OR(S, m, otherwise)                                                                         \
	{                                                                                                      \
		.key = #m, .type = RECORD_BOOL, .presence = RECORD_OR, .offset = RECORD_PLACE(S, m, bool),     \
		.number = otherwise                                                                            \
	}
#define FIELD_TEXT_AS(S, m, bytes_, presence_, otherwise)                                                      \
	{                                                                                                      \
		.key = #m, .type = RECORD_TEXT, .presence = presence_,                                         \
		.offset = RECORD_PLACE(S, m, const char *), .bytes = bytes_, .text = otherwise                 \
	}
#define FIELD_TEXT(S, m, bytes_) FIELD_TEXT_AS(S, m, bytes_, RECORD_REQUIRED, NULL)
#define FIELD_TEXT_MAYBE(S, m, bytes_) FIELD_TEXT_AS(S, m, bytes_, RECORD_MAYBE, NULL)
#define FIELD_TEXT_OR(S, m, bytes_, otherwise) FIELD_TEXT_AS(S, m, bytes_, RECORD_OR, otherwise)
#define FIELD_ID(S, m)                                                                                         \
	{                                                                                                      \
		.key = #m, .type = RECORD_ID, .offset = RECORD_PLACE_OF_ID(S, m)                               \
	}
#define FIELD_ID_MAYBE(S, m)                                                                                   \
	{                                                                                                      \
		.key = #m, .type = RECORD_ID, .presence = RECORD_MAYBE, .offset = RECORD_PLACE_OF_ID(S, m)     \
	}
#define FIELD_ERROR_MAYBE(S, m)                                                                                \
	{                                                                                                      \
		.key = #m, .type = RECORD_ERROR, .presence = RECORD_MAYBE,                                     \
		.offset = RECORD_PLACE(S, m, const struct error *)                                             \
	}
#define FIELD_ERROR(S, m)                                                                                      \
	{                                                                                                      \
		.key = #m, .type = RECORD_ERROR, .offset = RECORD_PLACE(S, m, const struct error *)            \
	}
/* T: the struct of record_ */
#define FIELD_MAP(S, m, T, record_)                                                                            \
	{                                                                                                      \
		.key = #m, .type = RECORD_MAP, .offset = RECORD_PLACE(S, m, const T *), .record = record_      \
	}
#define FIELD_MAP_MAYBE(S, m, T, record_)                                                                      \
	{                                                                                                      \
		.key = #m, .type = RECORD_MAP, .presence = RECORD_MAYBE,                                       \
		.offset = RECORD_PLACE(S, m, const T *), .record = record_                                     \
	}
/* T: the struct of record_. Its keys are read and written as if its rows stood here, and then its check is called. */
#define FIELD_SPLICE(S, m, T, record_)                                                                         \
	{                                                                                                      \
		.key = #m, .type = RECORD_SPLICE, .offset = RECORD_PLACE(S, m, T), .record = record_           \
	}
#define FIELD_ARRAY_AS(S, m, elements_, presence_, element_, wanted)                                           \
	.key = #m, .type = RECORD_ARRAY, .element = element_, .presence = presence_, .elements = elements_,    \
	RECORD_PLACE_OF_ITEMS(S, m, wanted)
#define FIELD_U64S(S, m, elements_)                                                                            \
	{                                                                                                      \
		FIELD_ARRAY_AS(S, m, elements_, RECORD_REQUIRED, RECORD_U64, const uint64_t *)                 \
	}
#define FIELD_U64S_MAYBE(S, m, elements_)                                                                      \
	{                                                                                                      \
		FIELD_ARRAY_AS(S, m, elements_, RECORD_MAYBE, RECORD_U64, const uint64_t *)                    \
	}
#define FIELD_U32S_MAYBE(S, m, elements_)                                                                      \
	{                                                                                                      \
		FIELD_ARRAY_AS(S, m, elements_, RECORD_MAYBE, RECORD_U32, const uint32_t *)                    \
	}
#define FIELD_TEXTS(S, m, elements_, bytes_)                                                                   \
	{                                                                                                      \
		FIELD_ARRAY_AS(S, m, elements_, RECORD_REQUIRED, RECORD_TEXT, const char *const *),            \
			.bytes = bytes_                                                                        \
	}
#define FIELD_TEXTS_MAYBE(S, m, elements_, bytes_)                                                             \
	{                                                                                                      \
		FIELD_ARRAY_AS(S, m, elements_, RECORD_MAYBE, RECORD_TEXT, const char *const *),               \
			.bytes = bytes_                                                                        \
	}
#define FIELD_MAPS(S, m, elements_, T, record_)                                                                \
	{                                                                                                      \
		FIELD_ARRAY_AS(S, m, elements_, RECORD_REQUIRED, RECORD_MAP, const T *), .record = record_     \
	}
#define FIELD_MAPS_MAYBE(S, m, elements_, T, record_)                                                          \
	{                                                                                                      \
		FIELD_ARRAY_AS(S, m, elements_, RECORD_MAYBE, RECORD_MAP, const T *), .record = record_        \
	}
/* Each element of these may be wrong by itself. */
#define FIELD_TEXTS_EACH_MAYBE(S, m, elements_, bytes_)                                                        \
	{                                                                                                      \
		FIELD_ARRAY_AS(S, m, elements_, RECORD_MAYBE, RECORD_TEXT, const char *const *),               \
			.bytes = bytes_,                                                                       \
			.errors_offset = RECORD_PLACE(S, m.errors, const struct error *const *)                \
	}
#define FIELD_MAPS_EACH(S, m, elements_, T, record_)                                                           \
	{                                                                                                      \
		FIELD_ARRAY_AS(S, m, elements_, RECORD_REQUIRED, RECORD_MAP, const T *),                       \
			.record = record_,                                                                     \
			.errors_offset = RECORD_PLACE(S, m.errors, const struct error *const *)                \
	}
/* An array that may be long: no struct holds it. The writer adds it after record_put, with a record_put_map for
 * each element, and a reader goes through it with fields_array and record_read_map. */
#define FIELD_LOOP_OF(key_, presence_, element_)                                                               \
	{                                                                                                      \
		.key = key_, .type = RECORD_LOOP, .presence = presence_, .element = element_                   \
	}
#define FIELD_LOOP_AS(key_, presence_, record_)                                                                \
	{                                                                                                      \
		.key = key_, .type = RECORD_LOOP, .presence = presence_, .element = RECORD_MAP,                \
		.record = record_                                                                              \
	}
#define FIELD_LOOP(key_, record_) FIELD_LOOP_AS(key_, RECORD_REQUIRED, record_)
#define FIELD_LOOP_MAYBE(key_, record_) FIELD_LOOP_AS(key_, RECORD_MAYBE, record_)
/* A map with a FIELD_LOOP in it. The writer opens it after record_put, and a reader finds it with fields_map. */
#define FIELD_OPEN_MAYBE(key_, record_)                                                                        \
	{                                                                                                      \
		.key = key_, .type = RECORD_OPEN, .presence = RECORD_MAYBE, .record = record_                  \
	}
/* T: the member's type, as the codec knows it */
#define FIELD_CODEC(S, m, presence_, T, codec_)                                                                \
	{                                                                                                      \
		.key = #m, .type = RECORD_CODEC, .presence = presence_, .offset = RECORD_PLACE(S, m, T),       \
		.codec = codec_                                                                                \
	}

#define RECORD_SIZE(S) (sizeof(S) + 0 * sizeof(char[sizeof(S) <= RECORD_BYTES_MAX ? 1 : -1]))
/* The record of struct S, whose rows are the array `rows`. */
#define RECORD(S, rows) .size = RECORD_SIZE(S), .fields = rows, .field_count = sizeof(rows) / sizeof(*(rows))

#endif
