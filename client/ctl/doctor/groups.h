/* The groups of checks. Each runs in a process of its own, with a limit of time: a driver or a file system that hangs ends its
 * own group only. */
#ifndef GPUWM_CTL_DOCTOR_GROUPS_H
#define GPUWM_CTL_DOCTOR_GROUPS_H

#include "findings.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct check_group {
	const char *name;
	int64_t limit_ms;
	/* socket: the argument of --socket, or NULL. */
	void (*run)(struct findings *findings, const char *socket);
};

/* In the order in which doctor shows them. */
extern const struct check_group groups[];
extern const size_t group_count;

/* Runs a group in a child. Returns what it found, for json_decref of both members; if the child took too long or died, that is
 * the only finding, of the check "answer". */
struct findings group_run(const struct check_group *group, const char *socket);

/* check_*.c */
void check_machine(struct findings *findings, const char *socket);
void check_leftovers(struct findings *findings, const char *socket);
void check_driver(struct findings *findings, const char *socket);
void check_nodes(struct findings *findings, const char *socket);
void check_users(struct findings *findings, const char *socket);
void check_sockets(struct findings *findings, const char *socket);
/* Whether check_sockets tells of a folder what stands in this text, too. */
bool check_sockets_says(const char *socket, const char *text);
void check_roots(struct findings *findings, const char *socket);
void check_peers(struct findings *findings, const char *socket);
void check_limits(struct findings *findings, const char *socket);
void check_service(struct findings *findings, const char *socket);
void check_kernel(struct findings *findings, const char *socket);
void check_container(struct findings *findings, const char *socket);
void check_descriptions(struct findings *findings, const char *socket);
void check_room(struct findings *findings, const char *socket);
void check_python(struct findings *findings, const char *socket);

/* Room of the group room, and how much of it is too little. */
#define SHM_LEAST                                                                                              \
	(UINT64_C(128) << 20) /* more than docker's default of 64 MiB, which engines and NCCL exceed */
#define SHM_FREE_LEAST (UINT64_C(32) << 20) /* what one NCCL communicator of eight ranks takes */
#define DISK_FREE_LEAST (UINT64_C(1) << 30) /* a core file or a log of a day */
#define MEMORY_FREE_LEAST (UINT64_C(512) << 20) /* a load takes a context's memory of the host, and 192 MiB */

struct room {
	const char *path, *remedy;
	uint64_t free, total;
	uint64_t free_least, total_least;
};

void room_judge(struct findings *findings, const struct room *room);

#endif
