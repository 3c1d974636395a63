#include "config_file.h"

#include "answer.h"

#include <stdio.h>

bool config_file_told(const json_t *status, char *ret_path, size_t size)
{
	const char *told = answer_text(status, "config");

	if (*told == '/')
		snprintf(ret_path, size, "%s", told);
	else if (*told) /* as it stands in the command line of gpuwmd */
		snprintf(ret_path, size, "/proc/%llu/cwd/%s", (unsigned long long)answer_number(status, "pid"),
			 told);
	return *told;
}
