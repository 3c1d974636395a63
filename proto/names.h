/* The grammar of names.
 *
 *   name    = 1 to 128 of letters, digits, '.', '_', '-', '/';
 *             no leading '.' or '/', no "..", not 32 hexadecimal digits
 *   ref     = model [ "@" (tag | alias) ]   |   version id
 *   version id = 32 lower-case hexadecimal digits
 *   device  = "host" | "GPU-" uuid | "MIG-" uuid
 */
#ifndef GPUWM_PROTO_NAMES_H
#define GPUWM_PROTO_NAMES_H

#include "limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ALIAS_CURRENT "current"
#define ALIAS_PREVIOUS "previous"
#define DEVICE_HOST "host"

/* 128 random bits that are never used again. Zero: none. */
struct version_id {
	uint8_t bytes[16];
};
#define VERSION_ID_TEXT 33 /* 32 digits and the zero */

/* What a reference says. Either has_id, or model and name; name is
 * "current" where the text had no '@'. */
struct ref {
	bool has_id;
	struct version_id id;
	char model[NAME_BYTES_MAX + 1];
	char name[NAME_BYTES_MAX + 1];
};

/* NULL when `text` is a valid name, else what is wrong with it, as the end of
 * a sentence ("is empty", "has a leading '.'"). */
const char *name_wrong(const char *text);

/* The same for a device. */
const char *device_wrong(const char *text);

/* Parses a reference. 0, or -EINVAL with *ret_why set as name_wrong does. */
int ref_parse(const char *text, struct ref *ret_ref, const char **ret_why);

/* 16 bytes as 32 hexadecimal digits, and back: -EINVAL unless exactly that. */
void hex128_format(const uint8_t bytes[16], char text[VERSION_ID_TEXT]);
int hex128_parse(const char *text, uint8_t ret_bytes[16]);

bool version_id_equal(const struct version_id *a, const struct version_id *b);

/* From the kernel's random source; blocks only before it is seeded at boot. */
int version_id_new(struct version_id *ret_id);

#endif
