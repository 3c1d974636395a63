/* The options of gpuwm_region_create, for each kind of region. */
#ifndef GPUWM_LIB_REGION_OPTIONS_H
#define GPUWM_LIB_REGION_OPTIONS_H

#include "../../include/gpuwm/region.h"
#include "../../proto/wire/messages_region.h"

/* Fails with -EINVAL. What only gpuwmd can know, as whether there is the device, is not checked here. */
int region_options_check(const struct gpuwm_region_options *options, struct error *error);
/* The request for it, without `use`. Its texts are the options'. */
struct region_create_params region_options_params(const struct gpuwm_region_options *options);

#endif
