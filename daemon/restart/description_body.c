/* The bodies of descriptions, as they are written. */
#include "description_file.h"

#include <stdio.h>

/* ---- the maps ---- */

/* Those of the ledger, and as many that could not be read. */
#define DESCRIBED_VERSIONS_MAX (2 * VERSIONS_MAX)
/* A model has them besides `current` and `previous`; each model has a version. */
#define DESCRIBED_ALIASES_MAX (DESCRIBED_VERSIONS_MAX * (ALIASES_PER_MODEL_MAX + 2))

static const struct record_field part_rows[] = {
	FIELD_U64_TO(struct described_part, rank, UINT32_MAX),
	FIELD_TEXT(struct described_part, device, DEVICE_BYTES_MAX),
	FIELD_U64(struct described_part, tensors),
	FIELD_U64(struct described_part, index_bytes),
	FIELD_ID(struct described_part, layout),
	FIELD_ID(struct described_part, content),
	FIELD_U64S(struct described_part, segments, PART_SEGMENTS_MAX),
	FIELD_MAPS_MAYBE(struct described_part, origins, PART_SEGMENTS_MAX, struct kept_origin,
			 &kept_origin_record),
};
const struct record described_part_record = {RECORD(struct described_part, part_rows)};

static const struct record_field version_rows[] = {
	FIELD_MAP(struct described_version, fixed, struct kept_fixed, &kept_fixed_record),
	FIELD_MAPS(struct described_version, devices, DEVICES_MAX, struct kept_device, &kept_device_record),
	FIELD_MAPS(struct described_version, parts, PARTS_PER_VERSION_MAX, struct described_part,
		   &described_part_record),
};
const struct record described_version_record = {RECORD(struct described_version, version_rows)};

static const struct record_field named_rows[] = {
	FIELD_ID(struct named_version, id),
	FIELD_ID(struct named_version, key),
	FIELD_BOOL_OR(struct named_version, resident, false),
	FIELD_BOOL_OR(struct named_version, left, false),
	FIELD_BOOL_OR(struct named_version, unnamed, false),
	FIELD_U64_OR(struct named_version, last_used_ms, 0, UINT64_MAX),
	FIELD_TEXTS(struct named_version, pins, PINS_PER_VERSION_MAX, NAME_BYTES_MAX),
};
const struct record named_version_record = {RECORD(struct named_version, named_rows)};

static const struct record_field names_rows[] = {
	FIELD_MAPS(struct described_names, devices, DEVICES_MAX, struct kept_device, &kept_device_record),
	FIELD_MAPS(struct described_names, versions, DESCRIBED_VERSIONS_MAX, struct named_version,
		   &named_version_record),
	FIELD_MAPS(struct described_names, aliases, DESCRIBED_ALIASES_MAX, struct kept_alias,
		   &kept_alias_record),
	FIELD_MAPS(struct described_names, owners, DESCRIBED_VERSIONS_MAX, struct kept_owner,
		   &kept_owner_record),
};
const struct record described_names_record = {RECORD(struct described_names, names_rows)};

/* ---- versions ---- */

bool description_is_due(const struct version *version)
{
	return version->description && version->state == VERSION_READY && !version->freeing &&
	       !version->cache.cached && !version_is_nameless(version);
}

static struct described_part part_of(const struct version *version, const struct replica *replica,
				     uint64_t sizes[PART_SEGMENTS_MAX],
				     struct kept_origin origins[PART_SEGMENTS_MAX])
{
	const uint32_t count = replica->sizes ? replica->size_count : replica->segment_count;

	for (uint32_t i = 0; i < count; i++)
		sizes[i] = replica->sizes ? replica->sizes[i] : replica->segments[i].segment->bytes;
	return (struct described_part){
		.rank = replica->rank,
		.device = replica->device->id,
		.tensors = replica->tensors,
		.index_bytes = replica->index.bytes,
		.layout = &replica->layout,
		.content = &replica->content,
		.segments = {sizes, count},
		.origins = kept_origins_of(version, replica, origins),
	};
}

static bool is_on(const struct version *version, const struct device *device)
{
	uint32_t i = 0;

	while (i < version->replica_count && version->replicas[i].device != device)
		i++;
	return i < version->replica_count;
}

void description_put(struct message_writer *w, const struct version *version,
		     const struct device_table *devices)
{
	struct kept_origin origins[PART_SEGMENTS_MAX];
	uint64_t sizes[PART_SEGMENTS_MAX];

	message_begin_map(w, NULL);
	message_begin_map(w, "fixed");
	kept_fixed_put(w, version);
	message_end(w);
	message_begin_array(w, "devices");
	for (size_t i = 0; i < devices->count; i++) {
		const struct device *device = devices->devices[i];
		const struct kept_device kept = kept_device_of(device);

		if (!device->kind->is_gpu || is_on(version, device))
			record_put_map(w, NULL, &kept_device_record, &kept);
	}
	message_end(w);
	message_begin_array(w, "parts");
	for (uint32_t i = 0; i < version->replica_count; i++) {
		const struct described_part part = part_of(version, &version->replicas[i], sizes, origins);

		record_put_map(w, NULL, &described_part_record, &part);
	}
	message_end(w);
	message_end(w);
}

/* ---- names ---- */

static bool has(const struct described_registry *of, const struct version *version)
{
	return of->has(of->data, version);
}

static void put_named(struct message_writer *w, const struct described_registry *of,
		      const struct version *version)
{
	const char *pins[PINS_PER_VERSION_MAX];

	for (uint32_t i = 0; i < version->pin_count; i++)
		pins[i] = version->pins[i];
	record_put_map(w, NULL, &named_version_record,
		       &(struct named_version){
			       .id = &version->id,
			       .key = of->key(of->data, version),
			       .resident = version_is_resident(version) ||
					   tier_is_resident(version->moving_to) || version->restores,
			       .last_used_ms = version->last_used_ms,
			       .pins = {pins, version->pin_count},
		       });
}

static void put_aliases(struct message_writer *w, const struct described_registry *of)
{
	const struct alias *alias = NULL;
	const char *model;

	message_begin_array(w, "aliases");
	while ((alias = registry_next_alias(of->registry, NULL, alias, &model))) {
		const bool before = alias->before && has(of, alias->before);

		if (has(of, alias->version))
			record_put_map(w, NULL, &kept_alias_record,
				       &(struct kept_alias){model, alias->name, &alias->version->id,
							    alias->generation,
							    before ? &alias->before->id : NULL});
	}
	for (uint32_t i = 0; i < of->left.alias_count; i++) {
		const struct kept_alias *left = &of->left.aliases[i];
		struct ref taken = {0};
		struct version *by;
		uint64_t none;

		snprintf(taken.model, sizeof(taken.model), "%s", left->model);
		snprintf(taken.name, sizeof(taken.name), "%s", left->name);
		if (registry_find(of->registry, &taken, &by, &none, NULL) < 0)
			record_put_map(w, NULL, &kept_alias_record, left);
	}
	message_end(w);
}

static void put_owners(struct message_writer *w, const struct described_registry *of)
{
	const struct model *model = NULL;

	message_begin_array(w, "owners");
	while ((model = registry_next_model(of->registry, model))) {
		const struct model_owner owner = model_owner(model);
		struct version *version = NULL;

		while ((version = registry_next_version(of->registry, model_name(model), version)) &&
		       !has(of, version))
			;
		if (owner.known && (version || model_is_reserved(model)))
			record_put_map(w, NULL, &kept_owner_record,
				       &(struct kept_owner){model_name(model), owner.uid, owner.by_operator});
	}
	message_end(w);
}

static bool device_is_used(const struct described_registry *of, const struct device *device)
{
	struct version *version = NULL;

	while ((version = registry_next_version(of->registry, NULL, version))) {
		if (is_on(version, device) && has(of, version))
			return true;
	}
	return false;
}

void description_put_names(struct message_writer *w, const struct described_registry *of)
{
	struct version *version = NULL;

	message_begin_map(w, NULL);
	message_begin_array(w, "devices");
	for (size_t i = 0; i < of->devices->count; i++) {
		const struct device *device = of->devices->devices[i];
		const struct kept_device kept = kept_device_of(device);

		if (!device->kind->is_gpu || device_is_used(of, device))
			record_put_map(w, NULL, &kept_device_record, &kept);
	}
	message_end(w);
	message_begin_array(w, "versions");
	while ((version = registry_next_version(of->registry, NULL, version))) {
		if (has(of, version))
			put_named(w, of, version);
	}
	for (uint32_t i = 0; i < of->left.version_count; i++)
		record_put_map(w, NULL, &named_version_record, &of->left.versions[i]);
	message_end(w);
	put_aliases(w, of);
	put_owners(w, of);
	message_end(w);
}
