/* Regions without the library: what its answers bring, and processes that use them. */
#ifndef GPUWM_TESTS_REGION_RAW_H
#define GPUWM_TESTS_REGION_RAW_H

#include "kept.h"
#include "proto/control.h"
#include "proto/wire/messages.h"

struct raw_region {
	uint8_t id[16], use[16];
	char text[33]; /* the id */
	uint64_t bytes, chunks, blocks, slot;
	bool write, owns;
	int control_fd, memory_fd; /* -1: none */
	struct control control; /* mapped; head NULL: not */
};

/* region_create and region_open: the code. The refusal is kept for raw_refusal. */
int region_ask(struct raw_region *ret, int sock, const char *method, const struct param *params);
#define REGION_CREATE(ret, sock, ...) region_ask((ret), (sock), "region_create", PARAMS(__VA_ARGS__))
#define REGION_OPEN(ret, sock, ...) region_ask((ret), (sock), "region_open", PARAMS(__VA_ARGS__))
/* A pool of 1 MiB and 16 chunks on host with many writers, of this name. */
void region_make(struct raw_region *ret, int sock, const char *name, const char *owner);
/* Seals it as its only writer does, once it has mapped it. */
void region_seal(const struct raw_region *region);
/* region_close: the code. Unmaps and closes what there is too. */
int region_close(int sock, struct raw_region *region);
/* The latter alone. */
void region_forget(struct raw_region *region);

/* The control memory of the one region that the library has open in this process, or of the first one. Sets *ret_bytes, which may be NULL.
 * Returns NULL if there is none. */
void *control_mapping(size_t *ret_bytes);
/* The same, which must be there. */
void *control_mapped(void);
/* The users that are there: a bit each. */
uint32_t control_users(const struct control *control);

/* An entry of region_list; NULL: it is not there. json_decref it. */
json_t *region_entry(struct gpuwmd *d, const char *region);
/* Whether the region is listed in this state with so many users. */
bool region_is(struct gpuwmd *d, const char *region, const char *state, size_t users);
uint64_t region_number(struct gpuwmd *d, const char *region, const char *key);
/* What is charged to host, where region_make makes regions. */
uint64_t host_used(struct gpuwmd *d);
/* How many there are. */
size_t regions_count(struct gpuwmd *d);

/* A process that opens a region with "r", "w" or "o" (own), or makes one of this name with "m" (of the process) or "u" (of the
 * user). It has done so, or was refused. */
struct process region_user_start(const char *region, const char *how);
/* The same by itself: what the process says first is left to the caller: 'a', or 'n' (ENOENT), 'p' (EACCES) or 'x' if it was refused. */
struct process region_user_begin(const char *region, const char *how);
/* The same as another user, without groups. Needs root. */
struct process region_user_begin_as(uid_t uid, const char *region, const char *how);
/* What it does on a word, and answers with it: 'h' holds chunk 0, 'b' owns block 0 and holds block 1, which is READY, 's' closes its
 * connection, 'd' scribbles over the control memory, 'c' closes the region. It ends when the test does. */
void region_user_does(struct process *p, char word);

#endif
