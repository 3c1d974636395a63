/* Where a version lies: gpuwmd's list tells it. */
#ifndef GPUWM_CTL_TIER_H
#define GPUWM_CTL_TIER_H

#include "answer.h"

/* The tier that a version of a list lies on: "device", "host" or "files". */
const char *tier_of(const json_t *version);
/* What its state says of that: ", on host", ", on files, promoting"; "" if it lies on its devices and stays there. */
const char *tier_text(const json_t *version, char text[CELL_TEXT]);

/* show of a version that does not lie on its devices, which nobody can attach to now. */
int tier_show(const json_t *version);

#endif
