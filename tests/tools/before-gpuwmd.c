/* Runs before gpuwmd, as the keeper's child that gpuwmd is then, and does to what was stored what a
 * test asks for.
 *   before-gpuwmd FILE PROGRAM [ARGUMENT]...
 * FILE, if it is there, is read and removed. Its lines:
 *   foreign NAME   stores a memfd of that name, and passes it on
 *   short NAME     the same with one of one byte, with all seals
 *   other NAME=WHAT  the same with something that is no memory: a pipe, socket, file, folder, path (O_PATH), event or device
 *   drop NAME      removes what has that name from the store, and passes it on no more
 *   tear           damages the younger slot of the state in its middle
 *   tear-all       damages both slots
 *   garble N       changes some bytes of the younger slot, by this seed, and leaves it a valid one
 *   format N       makes the younger slot one of that format, a valid one
 *   program PATH   runs that one instead, with the same arguments
 *   env NAME=VALUE sets the variable
 *   by-file        has the configuration's file say where gpuwmd serves: neither flags nor $GPUWM_SOCKET do
 */
#include "../../daemon/restart/store.h"
#include "../../proto/index/digest.h"
#include "../../base/limits.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#define FDS_MAX 4096
#define FIRST SD_LISTEN_FDS_START

static char *names[FDS_MAX];
static int count;
static const char *program;
static bool serves_by_file;

static void die(const char *what)
{
	fprintf(stderr, "before-gpuwmd: %s\n", what);
	exit(1);
}

static int find(const char *name)
{
	for (int i = 0; i < count; i++) {
		if (strcmp(names[i], name) == 0)
			return i;
	}
	die("nothing stored has that name");
	return -1;
}

/* ---- descriptors ------------------------------------------------------ */

static void store_fd(const char *name, int fd)
{
	char text[300];

	snprintf(text, sizeof text, "FDSTORE=1\nFDNAME=%s\nFDPOLL=0", name);
	if (count == FDS_MAX || fd < 0 || sd_pid_notify_with_fds(0, 0, text, &fd, 1) <= 0 ||
	    sd_notify_barrier(0, 5000000) <= 0)
		die("a foreign descriptor could not be stored");
	if (fd != FIRST + count && dup3(fd, FIRST + count, O_CLOEXEC) < 0)
		die("a foreign descriptor could not be passed on");
	names[count++] = strdup(name);
}

static void store_foreign(const char *name, off_t bytes, int seals)
{
	int fd = memfd_create("foreign", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0 || ftruncate(fd, bytes) < 0 || pwrite(fd, "x", 1, bytes - 1) != 1 ||
	    fcntl(fd, F_ADD_SEALS, seals) < 0)
		die("a foreign memfd could not be made");
	store_fd(name, fd);
}

/* Descriptors of another kind, which live as long as this process and its program. */
static int other_of(const char *what)
{
	int two[2];

	if (strcmp(what, "pipe") == 0)
		return pipe2(two, O_CLOEXEC) < 0 ? -1 : two[0];
	if (strcmp(what, "socket") == 0)
		return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (strcmp(what, "file") == 0)
		return open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	if (strcmp(what, "folder") == 0)
		return open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (strcmp(what, "path") == 0)
		return open("/", O_PATH | O_CLOEXEC);
	if (strcmp(what, "event") == 0)
		return eventfd(1, EFD_CLOEXEC);
	if (strcmp(what, "device") == 0)
		return open("/dev/zero", O_RDWR | O_CLOEXEC);
	die("no such kind of descriptor");
	return -1;
}

static void store_other(char *name)
{
	char *what = strchr(name, '=');

	if (!what)
		die("what the descriptor is to be is not said");
	*what = '\0';
	store_fd(name, other_of(what + 1));
}

static void drop(const char *name)
{
	int at = find(name);

	if (sd_notifyf(0, "FDSTOREREMOVE=1\nFDNAME=%s", name) <= 0 || sd_notify_barrier(0, 5000000) <= 0)
		die("a descriptor could not be removed");
	for (int i = at; i + 1 < count; i++) {
		dup3(FIRST + i + 1, FIRST + i, O_CLOEXEC);
		names[i] = names[i + 1];
	}
	close(FIRST + --count);
}

/* What sd_listen_fds reads. */
static void tell_fds(void)
{
	static char all[FDS_MAX * STORE_NAME_TEXT], number[16];

	for (int i = 0; i < count; i++) {
		strcat(all, i ? ":" : "");
		strcat(all, names[i]);
	}
	snprintf(number, sizeof number, "%d", count);
	setenv("LISTEN_FDS", number, 1);
	setenv("LISTEN_FDNAMES", all, 1);
	snprintf(number, sizeof number, "%d", (int)getpid());
	setenv("LISTEN_PID", number, 1);
}

/* ---- the state -------------------------------------------------------- */

/* As daemon/restart/state.h tells it. */
struct header {
	char magic[8];
	uint32_t format, slots;
	uint64_t generation, bytes;
	struct digest digest;
	uint64_t reserved;
};
#define SLOT_BYTES ((off_t)(sizeof(struct header) + MESSAGE_BODY_MAX))

static struct header header_read(unsigned slot)
{
	struct header header;

	if (pread(FIRST + find(STORE_STATE), &header, sizeof header, slot * SLOT_BYTES) != sizeof header)
		die("the state can't be read");
	return header;
}

static unsigned younger(void)
{
	return header_read(1).generation > header_read(0).generation;
}

static void tear(unsigned slot)
{
	off_t at = slot * SLOT_BYTES + (off_t)sizeof(struct header) + (off_t)header_read(slot).bytes / 2;
	int fd = FIRST + find(STORE_STATE);
	unsigned char byte = 0;

	if (pread(fd, &byte, 1, at) != 1)
		die("the state can't be read");
	byte ^= 0xff;
	if (pwrite(fd, &byte, 1, at) != 1)
		die("the state can't be written");
}

/* FROM=TO, of the same length: in place of the first FROM of the payload. */
static void replace_text(char *payload, size_t bytes, const char *texts)
{
	const char *to = strchr(texts, '=');
	const size_t length = to ? (size_t)(to - texts) : 0;
	char *found = to ? memmem(payload, bytes, texts, length) : NULL;

	if (!found || strlen(to + 1) != length)
		die("there is no such text in the state, or the other one is not as long");
	memcpy(found, to + 1, length);
}

/* Up to three bytes, at random. */
static void garble(unsigned char *payload, size_t bytes, unsigned seed)
{
	for (unsigned i = 0, word = seed; i <= seed % 3; i++) {
		word = word * 1664525 + 1013904223;
		payload[(word >> 8) % bytes] = (unsigned char)(word >> 24);
	}
}

/* The younger slot, with its digest. texts: as above; NULL: the payload stays, unless a seed is there to change it. */
static void rewrite(unsigned format, const char *texts, const char *seed)
{
	unsigned slot = younger();
	struct header header = header_read(slot);
	void *payload = malloc(header.bytes);
	struct digest_sum sum = {0};
	int fd = FIRST + find(STORE_STATE);
	off_t at = slot * SLOT_BYTES;

	if (!payload || pread(fd, payload, header.bytes, at + (off_t)sizeof header) != (ssize_t)header.bytes)
		die("the state can't be read");
	if (texts)
		replace_text(payload, header.bytes, texts);
	if (seed)
		garble(payload, header.bytes, (unsigned)strtoul(seed, NULL, 10));
	header.format = format;
	header.digest = (struct digest){0};
	digest_update(&sum, 0, &header, sizeof header);
	digest_update(&sum, sizeof header, payload, header.bytes);
	header.digest = digest_final(&sum, sizeof header + header.bytes);
	if (pwrite(fd, &header, sizeof header, at) != sizeof header ||
	    pwrite(fd, payload, header.bytes, at + (off_t)sizeof header) != (ssize_t)header.bytes)
		die("the state can't be written");
	free(payload);
}

/* ---- acts ------------------------------------------------------------- */

static void act(char *line)
{
	char *word = strtok(line, " \n"), *value = strtok(NULL, " \n");

	if (strcmp(word, "foreign") == 0) {
		store_foreign(value, 1 << 20, 0);
	} else if (strcmp(word, "short") == 0) {
		store_foreign(value, 1, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL);
	} else if (strcmp(word, "other") == 0) {
		store_other(value);
	} else if (strcmp(word, "drop") == 0) {
		drop(value);
	} else if (strcmp(word, "tear") == 0) {
		tear(younger());
	} else if (strcmp(word, "tear-all") == 0) {
		tear(0);
		tear(1);
	} else if (strcmp(word, "format") == 0) {
		rewrite((unsigned)strtoul(value, NULL, 10), NULL, NULL);
	} else if (strcmp(word, "garble") == 0) {
		rewrite(header_read(younger()).format, NULL, value);
	} else if (strcmp(word, "text") == 0) {
		rewrite(header_read(younger()).format, value, NULL);
	} else if (strcmp(word, "program") == 0) {
		program = strdup(value);
	} else if (strcmp(word, "env") == 0) {
		putenv(strdup(value));
	} else if (strcmp(word, "by-file") == 0) {
		serves_by_file = true;
	} else {
		die("no such act");
	}
}

/* The file is closed before: its descriptor may be the next that is passed on. */
static void act_all(FILE *file)
{
	static char text[4096];
	char *line = text, *end;

	text[fread(text, 1, sizeof text - 1, file)] = '\0';
	fclose(file);
	for (; (end = strchr(line, '\n')); line = end + 1) {
		*end = '\0';
		act(line);
	}
	tell_fds();
}

/* Leaves the flags out that name sockets, with their values. */
static void serve_by_file(char **argv)
{
	char **kept = argv;

	unsetenv("GPUWM_SOCKET");
	while (*argv) {
		if (strcmp(*argv, "--socket") == 0 || strcmp(*argv, "--admin-socket") == 0)
			argv += 2;
		else
			*kept++ = *argv++;
	}
	*kept = NULL;
}

int main(int argc, char **argv)
{
	char **given = NULL;
	FILE *file;

	if (argc < 3)
		die("FILE PROGRAM [ARGUMENT]... are missing");
	file = fopen(argv[1], "re");
	unlink(argv[1]);
	count = sd_listen_fds_with_names(0, &given);
	if (count < 0 || count > FDS_MAX)
		die("what was passed can't be told");
	for (int i = 0; i < count; i++)
		names[i] = given[i];
	if (file)
		act_all(file);
	if (serves_by_file)
		serve_by_file(argv + 2);
	for (int i = 0; i < count; i++)
		fcntl(FIRST + i, F_SETFD, 0); /* sd_listen_fds made them close-on-exec */
	execv(program ? program : argv[2], argv + 2);
	die("gpuwmd could not be run");
}
