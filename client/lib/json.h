/* A message as JSON text. */
#ifndef GPUWM_LIB_JSON_H
#define GPUWM_LIB_JSON_H

#include <msgpack.h>

/* Returns `object` as one line of JSON, which the caller frees. Integers have all of their 64 bits. Bytes of a text that are not UTF-8
 * become U+FFFD, binary data becomes null. NULL: there is no memory. */
char *json_text(const msgpack_object *object);

#endif
