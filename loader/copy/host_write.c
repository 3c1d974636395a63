#include "copy_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* For fewer bytes a call takes longer than the page faults that it saves. */
#define CALL_BYTES_MIN KIB(16)

bool host_pages_are_huge(void)
{
	FILE *file = fopen("/sys/kernel/mm/transparent_hugepage/shmem_enabled", "re");
	char line[128] = "";
	bool huge =
		file && fgets(line, sizeof(line), file) && !strstr(line, "[never]") && !strstr(line, "[deny]");

	if (file)
		fclose(file);
	return huge;
}

static uint64_t offset_in(const struct memory_segment *segment, const char *address)
{
	return (uintptr_t)address - (uintptr_t)segment->address;
}

int host_write(const struct memory_segment *segments, uint32_t count, char *to, const char *from, size_t bytes,
	       struct error *error)
{
	const struct memory_segment *segment = segments;

	if (bytes < CALL_BYTES_MIN) {
		memcpy(to, from, bytes);
		return 0;
	}
	while (count-- > 1 && offset_in(segment, to) >= segment->bytes)
		segment++;
	for (size_t done = 0; done < bytes;) {
		ssize_t n =
			pwrite(segment->fd, from + done, bytes - done, (off_t)(offset_in(segment, to) + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return error_set(error, -errno, "see free -m; retire what nobody needs",
					 "writing %zu bytes of host memory failed: %s", bytes, strerror(errno));
		done += (size_t)n;
	}
	return 0;
}
