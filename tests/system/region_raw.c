#include "region_raw.h"

#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

static struct control_shape shape_of(const struct raw_region *region)
{
	return (struct control_shape){.chunks = (uint32_t)region->chunks, .blocks = (uint32_t)region->blocks};
}

static void take(struct raw_region *ret, struct raw_reply *reply)
{
	struct fields f;
	void *control;

	fields_of(&f, reply->message.body);
	fields_hex128(&f, "region", ret->id);
	fields_hex128(&f, "use", ret->use);
	hex128_format(ret->id, ret->text);
	ret->bytes = fields_u64(&f, "bytes");
	ret->chunks = fields_u64(&f, "chunks");
	ret->blocks = fields_u64(&f, "blocks");
	ret->slot = fields_u64(&f, "slot");
	ret->write = fields_bool_or(&f, "write", false);
	ret->owns = fields_bool_or(&f, "owns", false);
	cr_assert_eq(packet_take_fd(&reply->packet, fields_u64(&f, "control"), &ret->control_fd), 0);
	cr_assert_eq(packet_take_fd(&reply->packet, fields_u64(&f, "memory"), &ret->memory_fd), 0);
	cr_assert_eq(f.error.code, 0, "%s", f.error.message);
	control = mmap(NULL, control_bytes(shape_of(ret)), PROT_READ | PROT_WRITE, MAP_SHARED, ret->control_fd,
		       0);
	cr_assert_neq(control, MAP_FAILED);
	ret->control = control_at(control, shape_of(ret));
}

int region_ask(struct raw_region *ret, int sock, const char *method, const struct param *params)
{
	static struct raw_reply reply;
	int code;

	*ret = (struct raw_region){.control_fd = -1, .memory_fd = -1};
	raw_send_with(sock, 7, method, params);
	if (!raw_receive(sock, &reply))
		return -ECONNRESET;
	code = reply.message.error.code;
	raw_refused_with(&reply.message.error);
	if (code == 0)
		take(ret, &reply);
	raw_reply_clear(&reply);
	return code;
}

void region_make(struct raw_region *ret, int sock, const char *name, const char *owner)
{
	cr_assert_eq(REGION_CREATE(ret, sock, TEXT("name", name), TEXT("device", "host"),
				   TEXT("writers", "many"), TEXT("owner", owner), NUMBER("bytes", MB(1)),
				   NUMBER("chunks", 16)),
		     0, "%s", raw_refusal());
}

void region_seal(const struct raw_region *region)
{
	cr_assert_eq(fcntl(region->memory_fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE), 0, "%s", strerror(errno));
}

void region_forget(struct raw_region *region)
{
	if (region->control.head)
		munmap(region->control.head, control_bytes(shape_of(region)));
	if (region->control_fd >= 0)
		close(region->control_fd);
	if (region->memory_fd >= 0)
		close(region->memory_fd);
	region->control.head = NULL;
	region->control_fd = region->memory_fd = -1;
}

int region_close(int sock, struct raw_region *region)
{
	region_forget(region);
	return RAW_ASK(sock, "region_close", ID("use", region->use));
}

/* ---- what the library has mapped -------------------------------------- */

void *control_mapping(size_t *ret_bytes)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	void *first, *end, *found = NULL;
	char line[512];

	while (maps && !found && fgets(line, sizeof line, maps)) {
		if (strstr(line, "memfd:gpuwm-control") && sscanf(line, "%p-%p", &first, &end) == 2)
			found = first;
	}
	if (maps)
		fclose(maps);
	if (found && ret_bytes)
		*ret_bytes = (size_t)((char *)end - (char *)first);
	return found;
}

void *control_mapped(void)
{
	void *found = control_mapping(NULL);

	cr_assert(found, "the control memory is not mapped");
	return found;
}

uint32_t control_users(const struct control *control)
{
	uint32_t here = 0;

	for (unsigned i = 0; i < REGION_USERS_MAX; i++)
		here |= (uint32_t)(atomic_load(&control->head->users[i].here) != 0) << i;
	return here;
}

/* ---- what gpuwmd says ------------------------------------------------- */

static json_t *list(struct gpuwmd *d)
{
	json_t *answer = query(d->admin, "region_list", NULL);

	cr_assert(json_is_array(json_object_get(answer, "regions")));
	return answer;
}

json_t *region_entry(struct gpuwmd *d, const char *region)
{
	json_t *answer = list(d), *entry, *found = NULL;
	size_t i;

	json_array_foreach(json_object_get(answer, "regions"), i, entry) {
		const char *name = json_string_value(json_object_get(entry, "name"));

		if ((name && strcmp(name, region) == 0) ||
		    strcmp(json_string_value(json_object_get(entry, "region")), region) == 0)
			found = json_incref(entry);
	}
	json_decref(answer);
	return found;
}

bool region_is(struct gpuwmd *d, const char *region, const char *state, size_t users)
{
	json_t *entry = region_entry(d, region);
	bool is = entry && strcmp(json_string_value(json_object_get(entry, "state")), state) == 0 &&
		  json_array_size(json_object_get(entry, "users")) == users;

	json_decref(entry);
	return is;
}

uint64_t region_number(struct gpuwmd *d, const char *region, const char *key)
{
	json_t *entry = region_entry(d, region);
	uint64_t value;

	cr_assert(entry, "no region %s", region);
	value = (uint64_t)json_integer_value(json_object_get(entry, key));
	json_decref(entry);
	return value;
}

uint64_t host_used(struct gpuwmd *d)
{
	json_t *status = query(d->admin, "status", NULL), *device;
	uint64_t used = 0;
	size_t i;

	json_array_foreach(json_object_get(status, "devices"), i, device) {
		if (strcmp(json_string_value(json_object_get(device, "device")), "host") == 0)
			used = (uint64_t)json_integer_value(json_object_get(device, "used"));
	}
	json_decref(status);
	return used;
}

size_t regions_count(struct gpuwmd *d)
{
	json_t *answer = list(d);
	size_t count = json_array_size(json_object_get(answer, "regions"));

	json_decref(answer);
	return count;
}

/* ---- processes -------------------------------------------------------- */

/* Without an owner: a pool, as region_make makes it. */
static int begin(struct raw_region *region, int sock, const char *name, char how)
{
	if (how == 'm' || how == 'u')
		return REGION_CREATE(region, sock, TEXT("name", name), TEXT("device", "host"),
				     TEXT("writers", "many"), TEXT("owner", how == 'u' ? "uid" : "process"),
				     NUMBER("bytes", MB(1)), NUMBER("chunks", 16));
	return REGION_OPEN(region, sock, TEXT("region", name), FLAG("write", how == 'w'),
			   FLAG("own", how == 'o'));
}

static void hold(const struct raw_region *region)
{
	struct control_chunk *chunk = &region->control.chunks[0];

	atomic_store(&chunk->offset, 0);
	atomic_store(&chunk->bytes, 4096);
	atomic_store(&chunk->generation, 5);
	atomic_store(&chunk->writer, (uint32_t)region->slot);
	atomic_store(&chunk->word, chunk_word_filling(5, (unsigned)region->slot));
}

/* The user owns the first block, and holds the second one, which another user has published. */
static void take_blocks(const struct raw_region *region)
{
	_Atomic uint64_t *words = region->control.blocks.words;
	uint64_t word = atomic_load(&words[1]), next;

	CHILD_ASSERT(block_word_own(atomic_load(&words[0]), (unsigned)region->slot, &next) == 0);
	atomic_store(&words[0], next);
	CHILD_ASSERT(block_word_hold(word, (unsigned)region->slot, block_word_generation(word), &next) == 0);
	atomic_store(&words[1], next);
}

static void act(struct raw_region *region, int *sock, char word)
{
	switch (word) {
	case 'h':
		hold(region);
		break;
	case 'b':
		take_blocks(region);
		break;
	case 's':
		close(*sock);
		*sock = -1;
		break;
	case 'd':
		memset(region->control.head, 0xa5, control_bytes(shape_of(region)));
		break;
	case 'c':
		CHILD_ASSERT(region_close(*sock, region) == 0);
		break;
	default:
		child_fail(__FILE__, __LINE__, "a known word");
	}
}

static void become(uid_t uid)
{
	if (uid > 0)
		CHILD_ASSERT(setgroups(0, NULL) == 0 && setgid(uid) == 0 && setuid(uid) == 0);
}

/* argv: region, how, uid. */
static int region_user(int argc, char **argv)
{
	struct raw_region region;
	int sock, code;
	char word;

	CHILD_ASSERT(argc == 3);
	become((uid_t)strtoul(argv[2], NULL, 10));
	sock = raw_client(getenv("GPUWM_SOCKET"));
	code = begin(&region, sock, argv[0], argv[1][0]);
	if (code < 0) {
		child_say(code == -ENOENT ? 'n' : code == -EACCES ? 'p' : 'x');
		return 0;
	}
	child_say('a');
	while ((word = child_hear()) != 0 && word != 'q') {
		act(&region, &sock, word);
		child_say(word);
	}
	return 0;
}

struct process region_user_begin(const char *region, const char *how)
{
	return region_user_begin_as(0, region, how);
}

struct process region_user_begin_as(uid_t uid, const char *region, const char *how)
{
	char text[16];

	snprintf(text, sizeof text, "%u", (unsigned)uid);
	return process_start(region_user, region, how, text, NULL);
}

struct process region_user_start(const char *region, const char *how)
{
	struct process p = region_user_begin(region, how);

	process_expect(&p, 'a');
	return p;
}

void region_user_does(struct process *p, char word)
{
	process_tell(p, word);
	process_expect(p, word);
}
