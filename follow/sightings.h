/* What gpuwmd tells of the workers of a model, in its answers to `list` and `clients`. */
#ifndef GPUWM_FOLLOW_SIGHTINGS_H
#define GPUWM_FOLLOW_SIGHTINGS_H

#include "fleet.h"
#include "../proto/names.h"

#include <jansson.h>

struct sightings {
	char version[VERSION_ID_TEXT]; /* that the name stands for; "": none */
	char tag[NAME_BYTES_MAX + 1]; /* of this version */
	struct sighting *items; /* malloced: each address once, by its newest lease */
	size_t count;
};

/* Sets *ret, which the caller clears. name: an alias or a tag of the model. Fails with -ENOMEM. */
int sightings_read(const json_t *list, const json_t *clients, const char *model, const char *name,
		   struct sightings *ret);
void sightings_clear(struct sightings *sightings);

#endif
