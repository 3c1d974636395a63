/* The grammar of names.
 *
 *   name    = 1 to 128 of letters, digits, '.', '_', '-', '/';
 *             no leading '.' or '/', no "..", not 32 hexadecimal digits
 *   ref     = model [ "@" (tag | alias) ]   |   version id
 *   version id = 32 lower-case hexadecimal digits
 *   device  = "host" | "GPU-" uuid | "MIG-" uuid        (memory_kind.h)
 */
#ifndef GPUWM_PROTO_NAMES_H
#define GPUWM_PROTO_NAMES_H

#include "../base/limits.h"
#include "memory_kind.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ALIAS_CURRENT "current"
#define ALIAS_PREVIOUS "previous"

/* 128 random bits that are never used again. All zero: no version. */
struct version_id {
	uint8_t bytes[16];
};
#define VERSION_ID_TEXT 33 /* 32 digits and the terminating zero */

/* Two names and the '@' between them. */
#define REF_BYTES_MAX (2 * NAME_BYTES_MAX + 1)

/* A parsed reference: either has_id and id, or model and name. If the text had no '@', name is
 * "current". */
struct ref {
	bool has_id;
	struct version_id id;
	char model[NAME_BYTES_MAX + 1];
	char name[NAME_BYTES_MAX + 1];
};

/* Returns NULL if `text` is a valid name, else what is wrong with it, as the end of a sentence ("is
 * empty", "has a leading '.'"). */
const char *name_wrong(const char *text);

/* Parses a reference. Returns 0 and sets *ret_ref. Fails with -EINVAL and sets *ret_why as
 * name_wrong does. */
int ref_parse(const char *text, struct ref *ret_ref, const char **ret_why);

/* The model of a user's versions that have no name. No request can name it: '~' is in no name. */
void nameless_model(uint32_t uid, char ret[NAME_BYTES_MAX + 1]);
bool name_is_nameless(const char *model);

/* Convert 16 bytes to 32 hexadecimal digits and back. hex128_parse fails with -EINVAL unless the
 * text is exactly that. */
void hex128_format(const uint8_t bytes[16], char text[VERSION_ID_TEXT]);
int hex128_parse(const char *text, uint8_t ret_bytes[16]);

bool version_id_equal(const struct version_id *a, const struct version_id *b);

/* Takes a new id from the kernel's random source. Blocks only before that is seeded at boot. */
int version_id_new(struct version_id *ret_id);

#endif
