/* What a load takes its files from. */
#ifndef GPUWM_CTL_LOAD_FROM_H
#define GPUWM_CTL_LOAD_FROM_H

#include "hub.h"

struct load_from {
	char *source; /* what gpuwmd gets */
	struct hub_files files; /* that are passed; none: gpuwmd's loader opens them */
	char ref[HUB_REF_MAX]; /* the version's name, if the user gives none; "": there is no such name */
};

/* Finds out what the user's SOURCE means. A path becomes absolute, a peer's version stays as it is. Of hf:ORG/NAME@REVISION it takes
 * the snapshot's path if that lies beneath a root of gpuwmd, if no folder between root and cache lets in its own user alone, and if the user
 * operates; else it opens the files, to pass them. It
 * says which snapshot it took, and as what it is loaded: `ref`, or (NULL) the name of its own.
 * EXIT_DONE with *ret_from for load_from_clear; or an exit code, after printing why. */
int load_from_find(struct gpuwm_client *client, const char *text, const char *ref, struct load_from *ret_from);
/* Fills in source, files and file_count. */
void load_from_put(const struct load_from *from, struct gpuwm_load_options *options);
void load_from_clear(struct load_from *from);

#endif
