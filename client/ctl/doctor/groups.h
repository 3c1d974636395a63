/* The groups of checks of `gpuwmctl doctor`, and what they find. Each group runs in a process of its own, with a limit of time: a
 * driver or a file system that hangs ends its own group only. */
#ifndef GPUWM_CTL_DOCTOR_GROUPS_H
#define GPUWM_CTL_DOCTOR_GROUPS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- findings: a verdict, what was found, and the remedy ---- */

enum verdict {
	VERDICT_OK,
	VERDICT_WARNING, /* gpuwm works, and something will be slower, missing or in danger */
	VERDICT_FAILED, /* what gpuwm needs does not work: doctor ends with 1 */
	VERDICT_NOT_APPLICABLE, /* this machine has no such thing, or this user may not see it */
	VERDICTS,
};
/* "ok", "warning", "failed", "not applicable" */
const char *verdict_name(enum verdict verdict);
/* Returns VERDICTS for a name that is none. */
enum verdict verdict_of(const char *name);

/* What one group of checks found, in its order. */
struct findings {
	json_t *list; /* of {check, subject?, verdict, found, remedy?} */
	json_t *devices; /* what the driver's group tells of each device: docs of -o json in gpuwmctl(1) */
};

/* Adds a finding. check: its name, such as "share". subject: the device, the file or the user that it is about, or NULL. remedy:
 * what to do about it, or NULL. Texts may have any bytes: those that are not UTF-8 become '?'. */
void finding(struct findings *findings, enum verdict verdict, const char *check, const char *subject,
	     const char *remedy, const char *format, ...) __attribute__((format(printf, 6, 7)));

/* ---- groups ---- */

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
