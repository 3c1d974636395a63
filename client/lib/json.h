/* A message as JSON text. */
#ifndef GPUWM_LIB_JSON_H
#define GPUWM_LIB_JSON_H

#include <msgpack.h>

/* `object` as one line of JSON, malloced. Integers are written in full (64
 * bits), what is no UTF-8 in a text becomes U+FFFD, binary becomes null. NULL:
 * out of memory. */
char *json_text(const msgpack_object *object);

#endif
