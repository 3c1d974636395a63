/* One source that a test opens, in a folder of its own. The teardown closes it, and checks that no descriptor is left. */
#ifndef GPUWM_TESTS_LOADER_OPENED_H
#define GPUWM_TESTS_LOADER_OPENED_H

#include "loader/files/source.h"
#include "tests/support/loader/files.h"

extern struct source source;
extern struct error error;
extern int fds_before;

void source_setup(void);
void source_teardown(void);

#endif
