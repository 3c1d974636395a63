#ifndef GPUWM_LOADER_TEXT_SHOWN_H
#define GPUWM_LOADER_TEXT_SHOWN_H

/* Returns how many bytes of a text from a file a message shows: at most TEXT_SHOWN_MAX. It cuts
 * between characters. */
int text_shown(const char *text);
#define TEXT_SHOWN_MAX 200

#endif
