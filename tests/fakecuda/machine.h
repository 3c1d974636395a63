/* The pretended machine: its devices, and who uses how much of their memory.
 * Shared by both stand-ins, so that driver and NVML tell the same. */
#ifndef FAKECUDA_MACHINE_H
#define FAKECUDA_MACHINE_H

#include <stdbool.h>
#include <stdint.h>

#define DEVICES_MAX 16
#define GRANULARITY (2ull << 20)
#define UUID_TEXT_BYTES 41 /* "GPU-", 32 digits, 4 hyphens, a zero */

struct machine {
	int device_count;
	uint64_t memory; /* bytes of each device */
	uint64_t context; /* bytes of it that a context takes */
	bool strict; /* the CPU can't touch device memory */
	int peers; /* the devices reach each other's memory; 2: and copy nothing of it */
	bool dirty; /* new memory is full of DIRTY_BYTE */
	bool fabric; /* memory may have fabric handles; nothing exports or imports them */
	bool mps; /* contexts are shared by a server, as the attribute says */
	bool words; /* streams write words and wait for them */
	unsigned delay; /* ms: what is queued on a stream happens so much later, at the earliest */
	char run[33]; /* whose memory it is: test runs at the same time do not mix */
};

#define DIRTY_BYTE 0xa5

/* From the environment (README.md), read once. A value that makes no sense
 * ends the program: a test that runs on another machine than it asked for proves nothing. */
const struct machine *machine(void);

/* Prints what is wrong and aborts. */
_Noreturn void machine_refuse(const char *variable, const char *value);

void machine_uuid(int device, uint8_t ret_uuid[16]);
void machine_uuid_text(int device, char ret_text[UUID_TEXT_BYTES]);
void machine_name(int device, char *ret_name, int size);

/* How a device is lost: what FAKECUDA_LOST says of it at this moment. */
enum loss {
	LOSS_NONE,
	LOSS_UNAVAILABLE, /* the driver refuses it; NVML has nothing to say */
	LOSS_ECC, /* contexts end with an uncorrectable ECC error */
	LOSS_BUS, /* it has fallen off the bus: NVML says so too */
	LOSS_ABSENT, /* processes that begin now don't see it, NVML neither */
	LOSS_MIG, /* the same, but NVML knows it as divided into MIG devices */
};
enum loss machine_loss(int device);

/* A memfd (close-on-exec) that counts as `bytes` of the device's memory as long as its open file
 * description lives. A description that a process opens anew, by /proc, does not count: hand the
 * descriptor over instead. -ENOSPC: not so much is free; -errno. */
int memory_file_create(int device, uint64_t bytes);

/* What memory_file_create made, in this run. False: something else. */
bool memory_file_of(int fd, int *ret_device, uint64_t *ret_bytes);

/* Bytes in use on the device. */
uint64_t memory_used(int device);

#endif
