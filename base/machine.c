#include "machine.h"

#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#define BOOT_ID "/proc/sys/kernel/random/boot_id"

static char boot_id[37]; /* a UUID; "": not known */

static void read_boot_id(void)
{
	int fd = open(BOOT_ID, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return;
	if (read(fd, boot_id, sizeof(boot_id) - 1) != sizeof(boot_id) - 1)
		boot_id[0] = '\0';
	close(fd);
}

const char *machine_name(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, read_boot_id);
	return boot_id[0] ? boot_id : NULL;
}

bool machine_is_this(const char *name)
{
	const char *own = machine_name();

	return own && name && strcmp(own, name) == 0;
}
