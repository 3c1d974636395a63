#include "own_program.h"

#include <string.h>
#include <unistd.h>

bool own_program_is_gone(char *ret_path, size_t size)
{
	static const char mark[] = " (deleted)"; /* the kernel's, behind the name of such a file */
	ssize_t bytes = readlink("/proc/self/exe", ret_path, size - 1);
	char *end;
	bool is_gone;

	ret_path[bytes > 0 ? bytes : 0] = '\0';
	if (bytes < (ssize_t)sizeof(mark))
		return false;
	end = ret_path + bytes - (sizeof(mark) - 1);
	is_gone = strcmp(end, mark) == 0;
	if (is_gone)
		*end = '\0';
	return is_gone;
}
