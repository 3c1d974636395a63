/* Parameters of a request, as a table. */
#ifndef GPUWM_TESTS_PARAMS_H
#define GPUWM_TESTS_PARAMS_H

#include "proto/wire/message.h"

struct param {
	const char *key; /* NULL ends a table */
	void (*put)(struct message_writer *w, const struct param *param);
	const char *text;
	const uint8_t *id;
	uint64_t number;
};

void param_put_text(struct message_writer *w, const struct param *param);
void param_put_number(struct message_writer *w, const struct param *param);
void param_put_signed(struct message_writer *w, const struct param *param);
void param_put_flag(struct message_writer *w, const struct param *param);
void param_put_id(struct message_writer *w, const struct param *param);

/* Each of these makes one parameter of a request: a text, a number, a number that may be negative, true or false, an
 * identifier of 16 bytes. */
#define TEXT(key_, value)                                                                                      \
	{                                                                                                      \
		.key = (key_), .put = param_put_text, .text = (value)                                          \
	}
#define NUMBER(key_, value)                                                                                    \
	{                                                                                                      \
		.key = (key_), .put = param_put_number, .number = (value)                                      \
	}
#define SIGNED(key_, value)                                                                                    \
	{                                                                                                      \
		.key = (key_), .put = param_put_signed, .number = (uint64_t)(value)                            \
	}
#define FLAG(key_, value)                                                                                      \
	{                                                                                                      \
		.key = (key_), .put = param_put_flag, .number = (value)                                        \
	}
#define ID(key_, value)                                                                                        \
	{                                                                                                      \
		.key = (key_), .put = param_put_id, .id = (value)                                              \
	}
#define PARAMS(...) ((const struct param[]){__VA_ARGS__, {0}})

/* Writes them. NULL is none. */
void params_put(struct message_writer *w, const struct param *params);

#endif
