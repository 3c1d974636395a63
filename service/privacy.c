#include "privacy.h"

#include <errno.h>
#include <sys/prctl.h>

int privacy_begin(void)
{
	return prctl(PR_SET_DUMPABLE, 0) < 0 ? -errno : 0;
}
