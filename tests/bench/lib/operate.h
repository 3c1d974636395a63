/* Loads and retires through the library, and what gpuwmd tells of its jobs. */
#ifndef GPUWM_BENCH_OPERATE_H
#define GPUWM_BENCH_OPERATE_H

#include <gpuwm/client.h>

#include <jansson.h>
#include <stdbool.h>
#include <sys/types.h>

#define OK(call)                                                                                               \
	do {                                                                                                   \
		if ((call) < 0)                                                                                \
			DIE("%s: %s (%s)", #call, gpuwm_error()->message, gpuwm_error()->detail);              \
	} while (0)

/* An operator's connection, to admin.sock beside `socket` (NULL: $GPUWM_SOCKET). */
struct gpuwm_client *operator_connect(const char *socket);
struct gpuwm_client *worker_connect(const char *socket);

/* A device as users write it ("cuda:0", "host", a UUID) as gpuwmd names it: valid as long as the client. */
const char *device_id(struct gpuwm_client *client, const char *name);

pid_t gpuwmd_pid(struct gpuwm_client *client);
/* Waits for gpuwmd to have a standby loader. */
void standby_wait(struct gpuwm_client *client);
bool standby_is_there(struct gpuwm_client *client);
/* Waits for a loader that keeps a CUDA context on the device; without keep_context it waits in vain, and fails. */
void kept_wait(struct gpuwm_client *client, const char *device);

/* Waits until no checker stays for its user's next check. */
void checkers_wait(struct gpuwm_client *client);

/* A job's figures. */
struct job_times {
	double ready_ms; /* request to ready, as the caller sees it */
	double copy_ms; /* of the phase "copying" */
	uint64_t bytes;
	char phases[512]; /* "opening 3, copying 310, ..." in ms */
	char notes[2048]; /* a line each */
};

/* Loads and waits. `devices`: as many as count. */
uint64_t load_begin(struct gpuwm_client *client, const char *source, const char *name,
		    const char *const *devices, size_t count);
struct job_times load_end(struct gpuwm_client *client, uint64_t job, double begin_us);
struct job_times load_and_wait(struct gpuwm_client *client, const char *source, const char *name,
			       const char *device);

/* The figures of the youngest job of this kind, which has ended; ready_ms is 0. */
struct job_times job_last(struct gpuwm_client *client, const char *kind);
/* The notes of the youngest job of this kind, a line each. */
void job_notes(struct gpuwm_client *client, const char *kind, char *ret_text, size_t bytes);

struct scrub_state {
	uint64_t passes;
	bool running;
};
struct scrub_state scrub_of(struct gpuwm_client *client);

/* Removes the model's alias `current`, where it names ref, and waits until the version is freed. */
void retire(struct gpuwm_client *client, const char *ref);

#endif
