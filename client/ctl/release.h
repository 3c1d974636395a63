/* Whether gpuwmd is of the same release as gpuwmctl, and runs from the file that is installed. */
#ifndef GPUWM_CTL_RELEASE_H
#define GPUWM_CTL_RELEASE_H

#include "answer.h"

#define RELEASE_TEXT 1024

/* Returns false if there is nothing to tell. Else sets ret_text to what is so, by gpuwmd's status. */
bool release_differs(const json_t *status, char ret_text[RELEASE_TEXT]);
/* Sets ret_remedy to how the gpuwmd at this socket is renewed. */
void release_remedy(const json_t *status, const char *socket, char ret_remedy[RELEASE_TEXT]);

/* Sets ret_path to the file that this gpuwmctl runs from. */
void release_own_path(char *ret_path, size_t size);

#endif
