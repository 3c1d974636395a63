/* Cut plans: those that are shipped with gpuwm, and files. */
#ifndef GPUWM_CTL_CUT_H
#define GPUWM_CTL_CUT_H

#include <stddef.h>

/* Reads the plan that --cut names: with a / in it, or .cut at its end, the path of a file, else the
 * name of a shipped plan. Returns EXIT_DONE and sets *ret to the text, for free(). Else an exit code,
 * after printing why. */
int cut_read(const char *given, char **ret);

/* Calls `offer` with the name of each shipped plan, in the order of the alphabet. Returns how many
 * there are; 0: the folder is not there. */
size_t cut_names(void (*offer)(const char *name, void *user_data), void *user_data);

#endif
