/* The bodies of descriptions, as they are read. */
#include "description_file.h"

#include "../../service/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int description_no_memory(struct error *error)
{
	return error_set(error, -ENOMEM, NULL, "gpuwmd is out of memory");
}

/* Reads the map of a body. On success the caller clears the message. */
static int read_map(const struct record *record, const void *body, size_t bytes, struct message *message,
		    void *ret, struct error *error)
{
	const char *why;
	struct error wrong;
	int r = message_read_body(body, bytes, message, &why);

	if (r == -ENOMEM)
		return description_no_memory(error);
	if (r < 0)
		return error_set(error, -EUCLEAN, NULL, "its body is no map of MessagePack: %s", why);
	r = record_read_map(record, message->body, message->zone, ret, &wrong);
	if (r < 0) {
		message_clear(message);
		return r == -ENOMEM ? description_no_memory(error)
				    : error_set(error, -EUCLEAN, NULL, "its body: %s", wrong.message);
	}
	return 0;
}

/* ---- a version ---- */

/* Those that the table does not have yet. */
static int take_devices(const struct kept_device *items, uint32_t count, struct device_table *table,
			struct error *error)
{
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < count; i++) {
		if (!device_find(table, items[i].id))
			r = kept_device_add(table, &items[i], error);
	}
	return r;
}

static int take_sizes(const struct described_part *kept, struct replica *part, struct error *error)
{
	part->sizes = calloc(kept->segments.count + 1, sizeof(*part->sizes));
	if (!part->sizes)
		return description_no_memory(error);
	part->size_count = kept->segments.count;
	for (uint32_t i = 0; i < kept->segments.count; i++) {
		part->sizes[i] = kept->segments.items[i];
		if (__builtin_add_overflow(part->bytes, part->sizes[i], &part->bytes))
			return error_set(error, -EUCLEAN, NULL, "its segments have more than 2^64 bytes");
	}
	return 0;
}

static int take_part(struct description_reading *reading, const struct described_part *kept,
		     const struct ledger *ledger, struct version *version, struct error *error)
{
	struct replica part = {
		.rank = (uint32_t)kept->rank,
		.device = device_find(&ledger->devices, kept->device),
		.tensors = kept->tensors,
		.layout = *kept->layout,
		.content = *kept->content,
		.index = {.fd = -1, .bytes = kept->index_bytes},
	};
	int r;

	if (!part.device)
		return error_set(error, -EUCLEAN, NULL, "it does not say what device %s is", kept->device);
	r = take_sizes(kept, &part, error);
	if (r == 0)
		r = kept_origins_take(&kept->origins, &version->id, kept->segments.count, &part, error);
	if (r == -EINVAL)
		r = error->code = -EUCLEAN;
	if (r == 0)
		r = description_file_index(reading, kept->index_bytes, &part.index.fd, error);
	if (r == 0)
		r = version_adopt_replica(version, &part, error);
	if (r < 0) {
		free(part.sizes);
		free(part.origins);
		if (part.index.fd >= 0)
			close(part.index.fd);
	}
	return r;
}

static int description_fill(struct description_reading *reading, const struct described_version *kept,
			    const struct ledger *ledger, struct version *version, struct error *error)
{
	const struct description *described = kept->fixed->description;
	int r = 0;

	if (!described)
		return error_set(error, -EUCLEAN, NULL, "it does not say where the version's files are");
	version->description = description_new(described);
	if (!version->description)
		return description_no_memory(error);
	for (uint32_t i = 0; r == 0 && i < kept->parts.count; i++)
		r = take_part(reading, &kept->parts.items[i], ledger, version, error);
	if (r == 0 && !version_complete(version))
		r = error_set(error, -EUCLEAN, NULL, "it has no part of one of its %u ranks", version->world);
	if (r == 0)
		r = description_file_check(reading, error);
	return r < 0 ? r : version_adopt_charges(version, ledger->quota, error);
}

static int take_version(struct description_reading *reading, const struct described_version *kept,
			struct ledger *ledger, struct version **ret_version, struct error *error)
{
	struct version like = {.state = VERSION_READY, .tier = ON_FILES}, *version;
	struct joiners joiners;
	int r = take_devices(kept->devices.items, kept->devices.count, &ledger->devices, error);

	if (r < 0)
		return r;
	kept_fixed_take(kept->fixed, &like, &joiners);
	r = registry_adopt(ledger->registry, kept->fixed->model, &like, &version, error);
	if (r < 0)
		return r;
	r = description_fill(reading, kept, ledger, version, error);
	if (r == 0) {
		*ret_version = version;
		return 0;
	}
	/* Nobody has seen the version. */
	for (uint32_t i = 0; i < version->replica_count; i++) {
		if (version->replicas[i].index.fd >= 0)
			close(version->replicas[i].index.fd);
	}
	version_move(version, VERSION_RETIRING);
	version_let_go(version);
	registry_remove(ledger->registry, version);
	return r;
}

int description_take(struct description_reading *reading, const struct version_id *id, struct ledger *ledger,
		     struct version **ret_version, struct error *error)
{
	const uint64_t has = registry_fds(ledger->registry), most = registry_fds_max(ledger->registry);
	struct described_version kept;
	struct message message;
	int r = read_map(&described_version_record, reading->body, reading->body_bytes, &message, &kept, error);

	if (r < 0)
		return r;
	if (!version_id_equal(kept.fixed->id, id))
		r = error_set(error, -EUCLEAN, NULL, "it describes another version than its name says");
	/* A descriptor that the store has no room for would be lost with the next restart, and the version with it. */
	if (r == 0 && has + kept.parts.count > most)
		r = error_set(error, -EDQUOT, NULL, "the fd store keeps %llu descriptors, and %llu are used",
			      (unsigned long long)most, (unsigned long long)has);
	if (r == 0)
		r = take_version(reading, &kept, ledger, ret_version, error);
	message_clear(&message);
	return r;
}

/* ---- names ---- */

int description_names_read(const void *body, size_t bytes, struct description_names *ret, struct error *error)
{
	return read_map(&described_names_record, body, bytes, &ret->message, &ret->kept, error);
}

uint32_t description_take_devices(const struct described_names *names, struct device_table *table)
{
	uint32_t left_out = 0;
	struct error why;

	for (uint32_t i = 0; i < names->devices.count; i++) {
		if (take_devices(&names->devices.items[i], 1, table, &why) == 0)
			continue;
		log_error("the device %s of the descriptions did not come back: %s", names->devices.items[i].id,
			  why.message);
		left_out++;
	}
	return left_out;
}

uint32_t description_take_named(struct version *version, const struct named_version *named)
{
	uint32_t left_out = 0;
	struct error why;

	version->last_used_ms = named->last_used_ms;
	for (uint32_t i = 0; i < named->pins.count; i++) {
		if (version_adopt_pin(version, named->pins.items[i], &why) == 0)
			continue;
		log_error("the pin \"%s\" of %s@%s did not come back: %s", named->pins.items[i],
			  model_name(version->model), version->tag, why.message);
		left_out++;
	}
	return left_out;
}

static struct version *version_of(const struct ledger *ledger, const struct kept_alias *kept,
				  const struct version_id *id)
{
	const struct ref ref = {.has_id = true, .id = *id};
	struct version *version;
	uint64_t generation;

	if (registry_find(ledger->registry, &ref, &version, &generation, NULL) < 0 ||
	    strcmp(model_name(version->model), kept->model) != 0)
		return NULL;
	return version;
}

bool description_take_alias(const struct kept_alias *kept, const struct ledger *ledger)
{
	struct version *version = version_of(ledger, kept, kept->version);
	struct version *before = kept->before ? version_of(ledger, kept, kept->before) : NULL;
	struct error why;
	int r = version ? registry_adopt_alias(ledger->registry, version, kept->name, kept->generation, &why)
			: error_set(&why, -ENOENT, NULL, "it names no version of this model");

	if (r == 0 && before)
		r = registry_adopt_before(ledger->registry, before, kept->name, &why);
	if (r < 0)
		log_error("the alias %s@%s, or what it named before, did not come back: %s", kept->model,
			  kept->name, why.message);
	return r == 0;
}

uint32_t description_take_owners(const struct described_names *names, struct ledger *ledger)
{
	uint32_t left_out = 0;
	struct error why;

	for (uint32_t i = 0; i < names->owners.count; i++) {
		const struct kept_owner *kept = &names->owners.items[i];
		const struct model_owner owner = {true, kept->by_operator, (uid_t)kept->uid};

		if (registry_adopt_owner(ledger->registry, kept->model, &owner, &why) == 0)
			continue;
		log_error("the owner of the model \"%s\" did not come back: %s", kept->model, why.message);
		left_out++;
	}
	return left_out;
}
