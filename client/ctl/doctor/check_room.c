/* room: of the file systems and the memory. */
#include "groups.h"

#include "../line.h"
#include "machine.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

void room_judge(struct findings *findings, const struct room *room)
{
	char left[SHORT_TEXT], all[SHORT_TEXT], least[SHORT_TEXT];

	size_text(room->free, left);
	size_text(room->total, all);
	if (room->total < room->total_least)
		finding(findings, VERDICT_WARNING, "size", room->path, room->remedy,
			"it has %s, engines want %s", all, size_text(room->total_least, least));
	else if (room->free < room->free_least)
		finding(findings, VERDICT_WARNING, "free", room->path, room->remedy, "%s of %s are free", left,
			all);
	else
		finding(findings, VERDICT_OK, "free", room->path, NULL, "%s of %s are free", left, all);
}

static void filesystem_judge(struct findings *findings, struct room *room)
{
	char place[PLACE_BYTES];
	struct statvfs info;

	if (statvfs(machine_place(room->path, place), &info) < 0) {
		finding(findings, VERDICT_NOT_APPLICABLE, "free", room->path, NULL, "%s", strerror(errno));
		return;
	}
	room->free = (uint64_t)info.f_bavail * info.f_frsize;
	room->total = (uint64_t)info.f_blocks * info.f_frsize;
	room_judge(findings, room);
}

static uint64_t memory_bytes(const char *key)
{
	char text[64];

	return machine_line("/proc/meminfo", key, text, sizeof(text)) ? strtoull(text, NULL, 10) << 10 : 0;
}

void check_room(struct findings *findings, const char *socket)
{
	struct room shm = {.path = "/dev/shm",
			   .total_least = SHM_LEAST,
			   .free_least = SHM_FREE_LEAST,
			   .remedy = "--shm-size=1g of the container; an emptyDir with medium: Memory"},
		    disk = {.path = "/",
			    .free_least = DISK_FREE_LEAST,
			    .remedy = "make room: logs and caches of engines go there"},
		    memory = {.path = "memory",
			      .free = memory_bytes("MemAvailable:"),
			      .total = memory_bytes("MemTotal:"),
			      .free_least = MEMORY_FREE_LEAST,
			      .remedy = "a load takes 192 MiB of the host's memory beside its context"};

	(void)socket;
	filesystem_judge(findings, &shm);
	filesystem_judge(findings, &disk);
	room_judge(findings, &memory);
}
