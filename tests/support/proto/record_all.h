/* A record with a row of every kind, and a message of it. */
#ifndef GPUWM_TESTS_PROTO_RECORD_ALL_H
#define GPUWM_TESTS_PROTO_RECORD_ALL_H

#include "proto/wire/record.h"
#include "proto/wire/reference.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

struct place {
	const char *device;
	uint64_t bytes;
};
extern const struct record_field place_rows[2];
extern const struct record place_record;

/* The keys `mark` and `marks`, which stand in the map of `all` itself. A mark of 13 is refused. */
struct marked {
	uint64_t mark;
	struct {
		const char *const *items;
		uint32_t count;
	} marks;
};

#define LIST(item)                                                                                             \
	struct {                                                                                               \
		item items;                                                                                    \
		uint32_t count;                                                                                \
	}
#define LIST_EACH(item)                                                                                        \
	struct {                                                                                               \
		item items;                                                                                    \
		const struct error *const *errors;                                                             \
		uint32_t count;                                                                                \
	}

struct all {
	uint64_t number, numbered;
	const uint64_t *maybe_number;
	int64_t wait;
	bool truth, defaulted;
	const bool *maybe_truth;
	const char *text, *maybe_text, *word;
	struct marked marked;
	const struct version_id *id;
	const struct digest *maybe_id;
	const struct error *error, *maybe_error;
	const struct place *place;
	LIST(const uint64_t *) numbers;
	LIST(const uint32_t *) users;
	LIST(const char *const *) texts, maybe_texts;
	LIST(const struct place *) places, maybe_places;
	LIST_EACH(const struct place *) each;
	LIST_EACH(const char *const *) each_text;
	char letter;
	struct reference reference;
};

/* `letter` is a truth value on the wire, 'y' or 'n' in memory, 'n' if it is missing. The number 666 is refused. */
extern const struct record all_record;

extern const struct version_id some_id;
extern const struct digest some_digest;
extern const struct error some_error;
extern const struct place some_places[2];
extern const uint64_t some_numbers[3];
extern const char *const some_texts[2];

/* What is written, and the message that it becomes; what was read of it. */
extern struct all all, got;
extern struct message_writer w;
extern struct message m;
extern struct error record_error;

/* Fixtures: all required keys and nothing else are in `all`; an end. */
void record_begin(void);
void record_clear(void);

/* Begin a message, and end it: m is what was written. */
void begin(void);
void end(void);

/* Writes `all`. */
void put_all(void);

#endif
