/* The limit that control groups set, in folders that stand for /proc and /sys/fs/cgroup. */
#include "loader/devices/memory_limit.h"
#include "loader/devices/devices.h"
#include "tests/support/loader/files.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static char root[256];

static void put(const char *path, const char *text)
{
	char full[512];

	snprintf(full, sizeof(full), "%s%s", root, path);
	for (char *slash = strchr(full + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		mkdir(full, 0700);
		*slash = '/';
	}
	write_bytes(full, text, strlen(text));
}

static void begin(void)
{
	folder_make();
	snprintf(root, sizeof(root), "%s", in_folder("root"));
}

TestSuite(memory_limit, .init = begin, .fini = folder_remove);

#define V2 "31 23 0:28 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
#define V1 "32 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"

Test(memory_limit, without_control_groups_there_is_none)
{
	cr_expect_eq(memory_limit(root), MEMORY_LIMIT_NONE);
	put("/proc/self/cgroup", "garbage\n");
	put("/proc/self/mountinfo", "garbage\n1 2 - cgroup2\n");
	cr_expect_eq(memory_limit(root), MEMORY_LIMIT_NONE);
}

Test(memory_limit, of_version_2_is_the_smallest_of_the_group_and_those_around_it)
{
	put("/proc/self/mountinfo", "22 1 8:1 / / rw - ext4 /dev/sda rw\n" V2);
	put("/proc/self/cgroup", "0::/pod/worker/inner\n");
	put("/sys/fs/cgroup/pod/worker/inner/memory.max", "max\n");
	cr_expect_eq(memory_limit(root), MEMORY_LIMIT_NONE);
	put("/sys/fs/cgroup/pod/worker/memory.max", "3000000000\n");
	cr_expect_eq(memory_limit(root), 3000000000);
	put("/sys/fs/cgroup/pod/memory.max", "2000000000\n");
	cr_expect_eq(memory_limit(root), 2000000000, "a parent's");
	put("/sys/fs/cgroup/pod/worker/inner/memory.max", "1000000000\n");
	cr_expect_eq(memory_limit(root), 1000000000, "its own");
}

/* The root of the hierarchy has no memory.max, but the root of a container's namespace has one. */
Test(memory_limit, of_a_containers_root_is_at_the_mount_point)
{
	put("/proc/self/mountinfo", V2);
	put("/proc/self/cgroup", "0::/\n");
	put("/sys/fs/cgroup/memory.max", "5000\n");
	cr_expect_eq(memory_limit(root), 5000);
	put("/proc/self/cgroup", "0::/../other\n"); /* of a process that another namespace put there */
	cr_expect_eq(memory_limit(root), 5000);
}

Test(memory_limit, of_version_1_is_the_smallest_of_the_group_and_those_around_it)
{
	put("/proc/self/mountinfo", "33 31 0:33 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n" V1);
	put("/proc/self/cgroup", "5:cpu:/a\n4:memory:/a/b\n0::/\n");
	put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
	put("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "7000\n");
	put("/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "8000\n");
	cr_expect_eq(memory_limit(root), 7000);
	put("/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "6000\n");
	cr_expect_eq(memory_limit(root), 6000);
}

/* Without a namespace of its own, a container has its group mounted as the root, and reads the group's whole path. */
Test(memory_limit, of_version_1_counts_groups_that_are_not_seen)
{
	put("/proc/self/mountinfo",
	    "32 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory,hugetlb\n");
	put("/proc/self/cgroup", "4:hugetlb,memory:/docker/abc/inner\n");
	put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "7000\n");
	put("/sys/fs/cgroup/memory/inner/memory.limit_in_bytes", "9223372036854771712\n");
	cr_expect_eq(memory_limit(root), 7000);
	put("/sys/fs/cgroup/memory/inner/memory.stat", "cache 0\nhierarchical_memory_limit 4000\n");
	cr_expect_eq(memory_limit(root), 4000);
}

/* Returns the size, and expects so much of it to be available. */
static uint64_t size_of_host(uint64_t available)
{
	uint64_t total = 0, told = 0;
	struct error error = {0};

	cr_assert_eq(memory_of_host(root, &total, &told, &error), 0, "%s", error.message);
	cr_expect_eq(told, available);
	return total;
}

#define MEMORY "MemTotal: 8000000 kB\nMemFree: 1 kB\nMemAvailable: 3000000 kB\n"

Test(memory_limit, is_the_size_of_the_host_where_it_is_smaller)
{
	put("/proc/meminfo", MEMORY);
	cr_expect_eq(size_of_host(KIB(3000000)), KIB(8000000), "without a limit");
	put("/proc/self/mountinfo", V2);
	put("/proc/self/cgroup", "0::/pod\n");
	put("/sys/fs/cgroup/pod/memory.max", "4000000000\n");
	cr_expect_eq(size_of_host(KIB(3000000)), 4000000000);
	put("/sys/fs/cgroup/pod/memory.max", "2000000000\n");
	cr_expect_eq(size_of_host(2000000000), 2000000000, "less than what is available");
	put("/sys/fs/cgroup/pod/memory.max", "9000000000\n");
	cr_expect_eq(size_of_host(KIB(3000000)), KIB(8000000), "more than the machine has");
}

Test(memory_limit, of_a_machine_that_does_not_tell_its_memory_is_an_error)
{
	uint64_t total, available;
	struct error error;

	cr_expect_eq(memory_of_host(root, &total, &available, &error), -EIO);
	put("/proc/meminfo", "MemFree: 1 kB\n");
	cr_expect_eq(memory_of_host(root, &total, &available, &error), -EIO);
	cr_expect(strstr(error.message, "/proc/meminfo"), "%s", error.message);
}

/* What gpuwmd is told. */
Test(memory_limit, is_of_this_process)
{
	uint64_t total = 0, expected = 1, available;
	struct error error;

	cr_assert_eq(device_total("host", &total, &error), 0, "%s", error.message);
	cr_assert_eq(memory_of_host("", &expected, &available, &error), 0, "%s", error.message);
	cr_expect_eq(total, expected);
}
