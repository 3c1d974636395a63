/* A message as JSON text. */
#ifndef GPUWM_LIB_JSON_H
#define GPUWM_LIB_JSON_H

#include <msgpack.h>
#include <stdio.h>

/* Returns `object` as one line of JSON, which the caller frees. Integers have all of their 64 bits. Bytes of a text that are not UTF-8
 * become U+FFFD, binary data becomes null. NULL: there is no memory. */
char *json_text(const msgpack_object *object);
/* Writes a text of UTF-8 in its quotes. Bytes that are none become U+FFFD. */
void json_put_text(FILE *out, const char *text, size_t bytes);

#endif
