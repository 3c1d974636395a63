#include "opened.h"

struct source source;
struct error error;
int fds_before;

void source_setup(void)
{
	folder_make();
	fds_before = fd_count();
}

void source_teardown(void)
{
	source_close(&source);
	cr_expect_eq(fd_count(), fds_before, "descriptors are left open");
	folder_remove();
}
