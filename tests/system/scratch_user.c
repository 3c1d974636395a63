#include "scratch_user.h"

#include <gpuwm/scratch.h>

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define BYTES MB(1)
#define ROUNDS 1000

/* ---- in the process ------------------------------------------------------ */

/* Fails if another process has it. */
static void alone(const char *path)
{
	int fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);

	CHILD_ASSERT(fd >= 0);
	close(fd);
	CHILD_ASSERT(unlink(path) == 0);
}

static void take_turns(struct gpuwm_region *region)
{
	char path[256];

	snprintf(path, sizeof path, "%s.held", getenv("GPUWM_SOCKET"));
	for (unsigned i = 0; i < ROUNDS; i++) {
		CHILD_ASSERT(gpuwm_scratch_acquire(region, -1) == 0);
		alone(path);
		CHILD_ASSERT(gpuwm_scratch_release(region) == 0);
	}
}

/* 'c': this process has a CUDA context of the first GPU; '-': it has none. */
static char look_for_context(void)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);
	int (*state)(int device, unsigned *flags, int *active) =
		driver ? (__typeof__(state))dlsym(driver, "cuDevicePrimaryCtxGetState") : NULL;
	unsigned flags;
	int active = 0;

	CHILD_ASSERT(state && state(0, &flags, &active) == 0);
	return active ? 'c' : '-';
}

static char look(const unsigned char *bytes)
{
	const unsigned char first = bytes[0];

	for (size_t i = 0; i < BYTES; i++) {
		if (bytes[i] != first)
			return '?';
	}
	return first == 0 ? '0' : first == 0xa5 ? 'w' : '?';
}

static char act(struct gpuwm_region *region, char word)
{
	switch (word) {
	case 'a':
		return gpuwm_scratch_acquire(region, -1) == 0 ? 'a' : 'e';
	case 'r':
		return gpuwm_scratch_release(region) == 0 ? 'r' : 'e';
	case 'w':
		memset(gpuwm_region_address(region), 0xa5, BYTES);
		return 'w';
	case 'l':
		return look(gpuwm_region_address(region));
	case 'c':
		return look_for_context();
	case 'n':
		take_turns(region);
		return 'n';
	default:
		return '?';
	}
}

/* argv: region, device, options. */
static int scratch_user(int argc, char **argv)
{
	const struct gpuwm_region_options options = {
		.size = sizeof options,
		.name = argv[0],
		.device = argv[1],
		.kind = GPUWM_REGION_SCRATCH,
		.writers = GPUWM_WRITERS_MANY,
		.owner = GPUWM_OWNER_UID,
		.bytes = BYTES,
		.clear = argv[2][0] != '\0',
	};
	struct gpuwm_region *region;
	struct gpuwm_client *client;
	char word;

	CHILD_ASSERT(argc == 3 && gpuwm_connect(NULL, &client) == 0);
	if (gpuwm_region_create(client, &options, &region) < 0)
		CHILD_ASSERT(gpuwm_region_open(client, argv[0], GPUWM_REGION_WRITE, 0, &region) == 0);
	child_say('s');
	while ((word = child_hear()) != 0 && word != 'q')
		child_say(act(region, word));
	CHILD_ASSERT(gpuwm_region_close(region) == 0);
	gpuwm_close(client);
	return 0;
}

/* ---- in the test --------------------------------------------------------- */

struct process scratch_user_start(struct gpuwmd *d, const char *region, const char *options)
{
	struct process p = process_start(scratch_user, region, d->device, options, NULL);

	process_expect(&p, 's');
	return p;
}

void scratch_user_does(struct process *p, char word)
{
	process_tell(p, word);
	process_expect(p, word);
}

void scratch_user_ends(struct process *p)
{
	process_tell(p, 'q');
	process_finish(p);
}

bool scratch_is_held(struct gpuwmd *d, const char *region)
{
	json_t *entry = region_entry(d, region);
	bool is_held;

	cr_assert(entry, "no region %s", region);
	is_held = json_is_integer(json_object_get(entry, "holder"));
	json_decref(entry);
	return is_held;
}

void scratch_remove(struct gpuwmd *d, const char *region)
{
	int sock = raw_client(d->socket);

	cr_assert_eq(RAW_ASK(sock, "region_remove", TEXT("region", region)), 0, "%s", raw_refusal());
	close(sock);
}

int scratch_raw_acquire(int sock, const struct raw_region *region, int64_t wait_ms)
{
	static struct raw_reply reply;
	struct fields f;
	int code;

	RAW_SEND(sock, 8, "scratch_acquire", ID("use", region->use), SIGNED("wait_ms", wait_ms));
	if (!raw_receive(sock, &reply))
		return -ECONNRESET;
	code = reply.message.error.code;
	raw_refused_with(&reply.message.error);
	if (code == 0) {
		fields_of(&f, reply.message.body);
		code = fields_bool_or(&f, "clear", false) ? SCRATCH_TO_CLEAR : SCRATCH_AS_IT_IS;
		cr_assert_eq(f.error.code, 0, "%s", f.error.message);
	}
	raw_reply_clear(&reply);
	return code;
}
