/* Cells of tables (table.h) that several commands show. */
#ifndef GPUWM_CTL_CELLS_H
#define GPUWM_CTL_CELLS_H

#include "table.h"
#include "text.h"

cell_fn cell_text;
cell_fn cell_number; /* "0" where there is none */
/* Of a lease. Those that a gpuwmd gave after restarts begin at a multiple of 2^32: 12884901890 is 3.2. */
cell_fn cell_lease;
cell_fn cell_size; /* of bytes */
cell_fn cell_size_known; /* the same; "" where there is no number */
cell_fn cell_age; /* since a time in milliseconds since 1970 */
cell_fn cell_time; /* of milliseconds */
cell_fn cell_count; /* of an array: how many members it has */
cell_fn cell_join; /* of an array of texts */
cell_fn cell_device; /* shortened */
cell_fn cell_devices; /* of an array of them */
cell_fn cell_name; /* MODEL@TAG of a row that has both; needs no key */
cell_fn cell_ref; /* what other commands take for a version: MODEL@TAG, or its id if it has no name; needs no key */

#endif
