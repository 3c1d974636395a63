/* Room, and how much of it is too little. */
#ifndef GPUWM_CTL_DOCTOR_ROOM_H
#define GPUWM_CTL_DOCTOR_ROOM_H

#include "findings.h"

#include <stdint.h>

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
