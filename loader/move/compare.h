/* What a verify has of a move: comparing files with a part, which moves nowhere. */
#ifndef GPUWM_LOADER_COMPARE_H
#define GPUWM_LOADER_COMPARE_H

#include "../job.h"

/* Reads the files params->source, and compares every tensor with the part's index; the part's memory is not needed. Adds a note with
 * what was read. params: model, tag, place, source, roots and choice.
 *
 * Returns 0. Fails with -EBADMSG if a tensor is missing or differs (the message names it and the file), with -ENOENT, and as
 * source_open does; with -ECANCELED and -ECONNRESET. */
int move_compare(const struct job_move_params *params, const struct part *part, struct work *work,
		 struct error *error);

#endif
