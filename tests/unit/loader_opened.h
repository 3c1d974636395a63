/* One source that a test opens, in a folder of its own. The teardown closes it, and checks that no descriptor is left. */
#ifndef GPUWM_TESTS_LOADER_OPENED_H
#define GPUWM_TESTS_LOADER_OPENED_H

#include "../../loader/source.h"
#include "loader_files.h"

static struct source source;
static struct error error;
static int fds_before;

static inline void source_setup(void)
{
	folder_make();
	fds_before = fds_open();
}

static inline void source_teardown(void)
{
	source_close(&source);
	cr_expect_eq(fds_open(), fds_before, "descriptors are left open");
	folder_remove();
}

#endif
