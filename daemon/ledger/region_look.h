/* What the control memory of a region says, by kind: for region_kind.c only. Each adds to *ret. */
#ifndef GPUWM_DAEMON_REGION_LOOK_H
#define GPUWM_DAEMON_REGION_LOOK_H

#include "region.h"

void region_count_chunks(const struct region *region, struct region_figures *ret);
void region_look_at_chunks(const struct region *region, struct region_figures *ret);
void region_count_messages(const struct region *region, struct region_figures *ret);
void region_count_blocks(const struct region *region, struct region_figures *ret);
void region_look_at_blocks(const struct region *region, struct region_figures *ret);
void region_count_scratch(const struct region *region, struct region_figures *ret);
void region_look_at_scratch(const struct region *region, struct region_figures *ret);

#endif
