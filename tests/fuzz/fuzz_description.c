/* fuzz_description [iterations [seed]]: mutates valid bodies of descriptions, and adopts them. Each iteration writes a file and waits for
 * the disk, so the program runs one iteration for a hundred that the caller asks for. Build it with the sanitizers.
 * A body that gpuwmd refuses must name a reason and leave no version behind. A body that gpuwmd accepts must give a version on the tier
 * files, from which the same body can be written again. */
#include "../../daemon/restart/description_file.h"
#include "fuzz.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define INDEX_BYTES 40
#define ROOM 16384

static char folder_path[] = "/tmp/gpuwm-fuzz-XXXXXX";
static int folder, index_fd;
static struct version_id id;
static char body[ROOM];
static size_t body_bytes;

static void add_device(struct device_table *table, const char *name, const struct memory_kind *kind)
{
	struct device device = {.name = "a device", .kind = kind, .total = GIB(80), .granularity = 4096};

	snprintf(device.id, sizeof(device.id), "%s", name);
	must(device_table_report(table, &device, 1) == 0, "no device");
}

static void put_body(const struct version *version, const struct device_table *devices)
{
	struct message_writer w;

	message_writer_init(&w, ROOM);
	description_put(&w, version, devices);
	must(message_finish(&w) == 0, "the body can't be put");
	memcpy(body, w.buffer.data, w.buffer.size);
	body_bytes = w.buffer.size;
	message_writer_clear(&w);
}

static void make_body(void)
{
	struct ledger ledger = {0};
	struct version like = {.state = VERSION_READY, .tier = ON_FILES, .world = 1, .owner = 1000}, *version;
	struct replica part = {.index = {.fd = dup(index_fd), .bytes = INDEX_BYTES}, .size_count = 3};
	struct error error;

	must(ledger_init(&ledger, &quota_defaults) == 0, "out of memory");
	add_device(&ledger.devices, DEVICE_HOST, &kind_host);
	add_device(&ledger.devices, "GPU-01234567-89ab-cdef-0123-456789abcdef", &kind_cuda);
	must(version_id_new(&id) == 0 && version_id_new(&like.publish) == 0, "no random bytes");
	like.id = id;
	snprintf(like.tag, sizeof(like.tag), "v1");
	must(registry_adopt(ledger.registry, "m", &like, &version, &error) == 0, "no version");
	part.device = ledger.devices.devices[1];
	part.sizes = calloc(part.size_count, sizeof(*part.sizes));
	must(part.sizes, "out of memory");
	part.sizes[0] = part.sizes[1] = part.sizes[2] = part.bytes = MIB(2);
	must(version_adopt_replica(version, &part, &error) == 0, "no part");
	version->description = description_new(&(struct description){
		.source = "/models/m", .choice = {.ranks = &(const uint64_t){2}, .cut = "a plan"}});
	must(version->description, "out of memory");
	put_body(version, &ledger.devices);
	ledger_clear(&ledger);
}

static void mutate(char *bytes, size_t *count)
{
	for (uint64_t i = 1 + draw(4); i > 0; i--) {
		const size_t at = draw(*count);

		switch (draw(4)) {
		case 0:
			bytes[at] = (char)draw(256);
			break;
		case 1:
			bytes[at] ^= (char)(1 << draw(8));
			break;
		case 2:
			memmove(bytes + at, bytes + at + 1, *count - at - 1);
			if (*count > 1)
				--*count;
			break;
		default:
			*count = *count < ROOM ? *count + 1 : *count;
			memmove(bytes + at + 1, bytes + at, *count - at - 1);
		}
	}
}

/* Returns whether it was accepted. */
static bool take(const char *bytes, size_t count)
{
	const struct description_index index = {index_fd, INDEX_BYTES};
	struct description_reading reading;
	struct ledger ledger = {0};
	struct version *version;
	struct error error = {0};
	int r;

	must(ledger_init(&ledger, &quota_defaults) == 0, "out of memory");
	must(description_file_write(folder, "v",
				    &(struct description_bytes){.kind = DESCRIPTION_VERSION,
								.body = bytes,
								.body_bytes = count,
								.indices = &index,
								.index_count = 1}) == 0,
	     "the file can't be written");
	must(description_file_open(folder, "v", DESCRIPTION_VERSION, &reading, &error) == 0,
	     "the file can't be read");
	r = description_take(&reading, &id, &ledger, &version, &error);
	description_file_close(&reading);
	if (r < 0) {
		must(error.code == r && error.message[0], "no reason is named");
		must(registry_counts(ledger.registry).versions == 0, "a version was left behind");
	} else {
		must(version->tier == ON_FILES && description_is_due(version), "it is no described version");
		put_body(version, &ledger.devices);
	}
	ledger_clear(&ledger);
	return r == 0;
}

int main(int argc, char **argv)
{
	const uint64_t iterations = fuzz_begin(argc, argv, 300000) / 100;
	uint64_t accepted = 0;
	char bytes[ROOM], valid[ROOM];
	size_t valid_bytes;

	must(mkdtemp(folder_path), "no folder");
	folder = open(folder_path, O_DIRECTORY | O_CLOEXEC);
	index_fd = memfd_create("index", MFD_CLOEXEC);
	must(folder >= 0 && index_fd >= 0 && ftruncate(index_fd, INDEX_BYTES) == 0, "no files");
	make_body();
	memcpy(valid, body, body_bytes);
	valid_bytes = body_bytes;
	must(take(valid, valid_bytes), "what is valid is refused");
	for (uint64_t i = 0; i < iterations; i++) {
		size_t count = valid_bytes;

		memcpy(bytes, valid, valid_bytes);
		mutate(bytes, &count);
		accepted += take(bytes, count);
	}
	unlinkat(folder, "v", 0);
	rmdir(folder_path);
	return fuzz_end(accepted, iterations);
}
