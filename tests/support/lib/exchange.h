/* What tests of gpuwm_exchange share: `mapping` of v1 and `other` of v2, attached to the gpuwmd of switch.h. */
#ifndef GPUWM_TESTS_LIB_EXCHANGE_H
#define GPUWM_TESTS_LIB_EXCHANGE_H

#include "tests/support/lib/switch.h"

extern struct gpuwm_mapping *mapping, *other;

void exchange_setup(void);
void exchange_teardown(void);

/* The lease that the mapping has is one on its version, and its client holds it. */
void has_its_lease(const struct gpuwm_mapping *one);

/* `first` is v1 now, and `second` is v2. */
void are_at(const struct gpuwm_mapping *first, const struct gpuwm_mapping *second);

/* Detaches, which gives back the lease of this mapping and no other, and sets *gone to NULL. */
void detach_gives_back(struct gpuwm_mapping **gone);

#endif
