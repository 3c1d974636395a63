/* JSON as text, for programs that have Jansson. */
#ifndef GPUWM_SERVICE_JANSSON_TEXT_H
#define GPUWM_SERVICE_JANSSON_TEXT_H

#include <jansson.h>

/* Returns the value as compact JSON, which the caller frees; of any type, an object or a bare number. NULL: there is no memory. Jansson's own
 * json_dumps (2.14) leaves characters out where its buffer can't grow, and says nothing. */
char *jansson_text(const json_t *value);

#endif
