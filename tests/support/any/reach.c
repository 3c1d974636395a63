#include "reach.h"

#include <sys/syscall.h>
#include <unistd.h>

/* By system calls, which no sanitizer looks at. */
static bool reach(void *address, bool write_too)
{
	int ends[2];
	bool can;

	if (pipe(ends) < 0)
		return false;
	can = syscall(SYS_write, ends[1], address, 1) == 1 &&
	      (!write_too || syscall(SYS_read, ends[0], address, 1) == 1);
	close(ends[0]);
	close(ends[1]);
	return can;
}

bool can_read(void *address)
{
	return reach(address, false);
}

bool can_write(void *address)
{
	return reach(address, true);
}
