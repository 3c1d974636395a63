#include "leftover.h"

#include "machine.h"
#include "text.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAKER_SIGN ".by-" /* before the text in a name */
#define SUFFIX ".tmp"
#define BOOT_DIGITS 16 /* of the boot's id, which has 32 */
#define RANDOM_BYTES 8
#define OF_BYTES_MAX 140 /* of a file's name, in its temporary name */
_Static_assert(1 + OF_BYTES_MAX + sizeof(MAKER_SIGN) + LEFTOVER_MAKER_BYTES + 1 + 2 * RANDOM_BYTES +
			       sizeof(SUFFIX) <=
		       NAME_MAX,
	       "a temporary name fits");

struct maker {
	char boot[BOOT_DIGITS + 1];
	uint64_t pid_namespace, pid;
	uint64_t started; /* ticks since the boot; 0: unknown */
};

/* Reads the beginning of a file of /proc. Sets *ret to "" if it can't be read. */
static void proc_read(const char *path, char *ret, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t got = fd < 0 ? -1 : read(fd, ret, size - 1);

	if (fd >= 0)
		close(fd);
	ret[got < 0 ? 0 : got] = '\0';
}

/* The 22nd field of stat; the second one is a name in parentheses, which may have anything in it. */
static uint64_t started_of(const char *process)
{
	char path[sizeof("/proc//stat") + 24], text[1024];
	const char *at;

	snprintf(path, sizeof(path), "/proc/%s/stat", process);
	proc_read(path, text, sizeof(text));
	at = strrchr(text, ')');
	for (int field = 2; at && field < 22; field++)
		at = strchr(at + 1, ' ');
	return at ? strtoull(at, NULL, 10) : 0;
}

static struct maker maker_this(void)
{
	struct maker maker = {.pid = (uint64_t)getpid()};
	char link[64];
	struct stat st;
	size_t digits = 0;
	ssize_t length = readlink("/proc/self", link, sizeof(link) - 1);

	/* /proc may be that of another pid namespace. */
	if (length < 0)
		return maker;
	link[length] = '\0';
	if (strtoull(link, NULL, 10) != maker.pid)
		return maker;
	for (const char *c = machine_name(); c && *c && digits < BOOT_DIGITS; c++)
		if (isxdigit((unsigned char)*c))
			maker.boot[digits++] = *c;
	if (stat("/proc/self/ns/pid", &st) == 0)
		maker.pid_namespace = st.st_ino;
	if (digits == BOOT_DIGITS && maker.pid_namespace)
		maker.started = started_of("self");
	return maker;
}

void leftover_maker_write(char ret[LEFTOVER_MAKER_BYTES])
{
	const struct maker maker = maker_this();

	snprintf(ret, LEFTOVER_MAKER_BYTES, "%s-%" PRIu64 "-%" PRIu64 "-%" PRIu64,
		 maker.started ? maker.boot : "unknown", maker.pid_namespace, maker.pid, maker.started);
}

enum leftover_maker leftover_maker_look(const char *text)
{
	const struct maker here = maker_this();
	struct maker maker;
	char process[24];
	uint64_t started;

	if (sscanf(text, "%16[0-9a-f]-%" SCNu64 "-%" SCNu64 "-%" SCNu64, maker.boot, &maker.pid_namespace,
		   &maker.pid, &maker.started) != 4)
		return MAKER_UNKNOWN;
	if (!here.started || !maker.started || maker.pid == 0 || maker.pid > INT32_MAX ||
	    strcmp(maker.boot, here.boot) != 0 || maker.pid_namespace != here.pid_namespace)
		return MAKER_UNKNOWN;
	if (kill((pid_t)maker.pid, 0) < 0 && errno == ESRCH)
		return MAKER_GONE;
	/* Another process may have got the pid since. */
	snprintf(process, sizeof(process), "%" PRIu64, maker.pid);
	started = started_of(process);
	return started && started != maker.started ? MAKER_GONE : MAKER_LIVES;
}

int leftover_name(const char *of, char ret[NAME_MAX + 1])
{
	char maker[LEFTOVER_MAKER_BYTES], digits[2 * RANDOM_BYTES + 1];
	unsigned char random[RANDOM_BYTES];
	ssize_t got;

	/* A signal can interrupt the call only before the source is seeded. */
	do
		got = getrandom(random, sizeof(random), 0);
	while (got < 0 && errno == EINTR);
	if (got < 0)
		return -errno;
	for (size_t i = 0; i < sizeof(random); i++)
		snprintf(digits + 2 * i, 3, "%02x", random[i]);
	leftover_maker_write(maker);
	snprintf(ret, NAME_MAX + 1, ".%.*s" MAKER_SIGN "%s.%s" SUFFIX, OF_BYTES_MAX, of, maker, digits);
	for (char *c = ret; *c; c++)
		if (*c == '/')
			*c = '-';
	return 0;
}

/* Returns the text of the process that made a file, or NULL if the name has none. */
static const char *maker_in(const char *name)
{
	const char *at = NULL;

	if (name[0] != '.' || !text_ends(name, SUFFIX))
		return NULL;
	for (const char *next = name; (next = strstr(next, MAKER_SIGN)); next++)
		at = next;
	return at ? at + strlen(MAKER_SIGN) : NULL;
}

int leftovers_remove(int folder, struct leftovers *ret)
{
	int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r;
	DIR *directory = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;

	*ret = (struct leftovers){0};
	if (!directory) {
		r = -errno;
		if (fd >= 0)
			close(fd);
		return r;
	}
	/* cppcheck-suppress readdirCalled ; the folder is this call's own */
	while ((entry = readdir(directory))) {
		const char *maker = maker_in(entry->d_name);
		enum leftover_maker is;
		struct stat st;

		if (!maker || fstatat(folder, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
		    !S_ISREG(st.st_mode) || st.st_uid != geteuid())
			continue;
		is = leftover_maker_look(maker);
		if (is == MAKER_UNKNOWN) {
			ret->unknown++;
			snprintf(ret->example, sizeof(ret->example), "%s", entry->d_name);
		} else if (is == MAKER_LIVES) {
			ret->living++;
			snprintf(ret->worked_on, sizeof(ret->worked_on), "%s", entry->d_name);
		} else if (unlinkat(folder, entry->d_name, 0) == 0) {
			ret->removed++;
		}
	}
	closedir(directory);
	return 0;
}
