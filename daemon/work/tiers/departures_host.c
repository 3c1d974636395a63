/* Host memory is the machine's, so what is free there tells nothing of one version. But the kernel lists what a process maps and has open,
 * to gpuwmd's own user and to root. */
#include "departures.h"

#include "../work.h"
#include "../../net/peer.h"
#include "moves.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#define PATH_TEXT 64

struct memory_file {
	dev_t device;
	ino_t inode;
	uint64_t bytes;
	bool found;
};

struct suspect {
	uint64_t lease;
	pid_t pid;
	uint64_t bytes; /* that its process has */
};

struct host_look {
	uv_work_t request;
	struct work *work;
	struct version_id version;
	struct device *device;
	uint64_t bytes;
	struct memory_file files[PART_SEGMENTS_MAX];
	uint32_t file_count;
	size_t suspect_count;
	struct suspect suspects[];
};

/* ---- on the thread pool: a process that hangs may keep its list ---- */

static void look_mark(struct host_look *look, dev_t device, ino_t inode)
{
	for (uint32_t i = 0; i < look->file_count; i++)
		look->files[i].found |= look->files[i].device == device && look->files[i].inode == inode;
}

static void look_at_maps(struct host_look *look, pid_t pid)
{
	char path[PATH_TEXT], *line = NULL;
	unsigned major, minor;
	unsigned long long inode;
	size_t size = 0;
	FILE *maps;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	maps = fopen(path, "re");
	while (maps && getline(&line, &size, maps) >= 0) {
		if (sscanf(line, "%*x-%*x %*s %*x %x:%x %llu", &major, &minor, &inode) == 3)
			look_mark(look, makedev(major, minor), (ino_t)inode);
	}
	free(line);
	if (maps)
		fclose(maps);
}

static void look_at_descriptors(struct host_look *look, pid_t pid)
{
	char path[PATH_TEXT];
	struct dirent *entry;
	struct statx info;
	DIR *folder;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	folder = opendir(path);
	/* The worker chooses what it has open. What the kernel knows of it is enough: a file system may hang for ever. */
	/* cppcheck-suppress readdirCalled ; the folder is this call's own */
	while (folder && (entry = readdir(folder))) {
		if (statx(dirfd(folder), entry->d_name, AT_STATX_DONT_SYNC, STATX_INO, &info) == 0)
			look_mark(look, makedev(info.stx_dev_major, info.stx_dev_minor), info.stx_ino);
	}
	if (folder)
		closedir(folder);
}

static void on_work(uv_work_t *request)
{
	struct host_look *look = request->data;

	for (size_t i = 0; i < look->suspect_count; i++) {
		struct suspect *suspect = &look->suspects[i];

		for (uint32_t k = 0; k < look->file_count; k++)
			look->files[k].found = false;
		look_at_maps(look, suspect->pid);
		look_at_descriptors(look, suspect->pid);
		for (uint32_t k = 0; k < look->file_count; k++)
			suspect->bytes += look->files[k].found ? look->files[k].bytes : 0;
	}
}

/* ---- on the loop ---- */

static void on_looked(uv_work_t *request, int status)
{
	struct host_look *look = request->data;
	uint64_t most = 0;

	for (size_t i = 0; status == 0 && i < look->suspect_count; i++) {
		const struct suspect *suspect = &look->suspects[i];
		struct lease *lease = lease_by_id(look->work->ledger->registry, suspect->lease);

		if (lease && lease->parked)
			lease->missing = suspect->bytes;
		most = suspect->bytes > most ? suspect->bytes : most;
	}
	if (most > 0)
		departure_warn(look->work, &look->version, look->device, look->bytes, most);
	free(look);
}

static void look_take_files(struct host_look *look, const struct relocated *memory)
{
	for (uint32_t k = 0; memory->moves && k < memory->count; k++) {
		const struct segment *segment = memory->segments[k].segment;
		struct stat info;

		if (!memory->segments[k].last || fstat(segment->fd, &info) < 0)
			continue;
		look->files[look->file_count++] = (struct memory_file){
			.device = info.st_dev, .inode = info.st_ino, .bytes = segment->bytes};
		look->bytes += segment->bytes;
	}
}

void departure_look_at_host(struct tier_move *move, uint32_t part)
{
	const struct version *version = move->version;
	struct host_look *look = calloc(1, sizeof(*look) + version->lease_count * sizeof(look->suspects[0]));

	if (!look)
		return;
	look->request.data = look;
	look->work = move->work;
	look->version = version->id;
	look->device = version->replicas[part].device;
	look_take_files(look, &move->memory[part]);
	for (const struct lease *l = version->leases; l; l = l->next_of_version) {
		if (l->parked && l->replica == part && l->peer && l->peer->pid > 0)
			look->suspects[look->suspect_count++] =
				(struct suspect){.lease = l->id, .pid = l->peer->pid};
	}
	if (look->file_count == 0 || look->suspect_count == 0 ||
	    uv_queue_work(move->work->loop, &look->request, on_work, on_looked) != 0)
		free(look);
}
