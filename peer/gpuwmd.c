#include "gpuwmd.h"

#include "../proto/names.h"
#include "../proto/tier_kind.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char *text_of(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? text : "";
}

static uint64_t number_of(const json_t *object, const char *key)
{
	return (uint64_t)json_integer_value(json_object_get(object, key));
}

static bool can_be_taken(const json_t *version)
{
	return strcmp(text_of(version, "state"), "ready") == 0 &&
	       !name_is_nameless(text_of(version, "model")) && number_of(version, "world") > 0 &&
	       number_of(version, "world") <= PARTS_PER_VERSION_MAX;
}

/* Whoever is told EBUSY asks again. */
static int no_memory(struct error *error)
{
	return error_set(error, -EBUSY, NULL, "gpuwm-peer has no memory for gpuwmd's list");
}

int listing_read(const char *json, struct listing *ret, struct error *error)
{
	json_t *answer = json_loads(json, 0, NULL), *version;
	const json_t *all = json_object_get(answer, "versions");
	struct listing listing = {.answer = answer};
	size_t i;

	if (!answer) /* gpuwmd sends JSON */
		return no_memory(error);
	if (!json_is_array(all)) {
		json_decref(answer);
		return error_set(error, -EPROTO, NULL, "gpuwmd's list has no versions");
	}
	listing.versions = calloc(json_array_size(all) + 1, sizeof(json_t *));
	if (!listing.versions) {
		json_decref(answer);
		return no_memory(error);
	}
	json_array_foreach(all, i, version) {
		if (can_be_taken(version))
			listing.versions[listing.count++] = version;
	}
	*ret = listing;
	return 0;
}

void listing_clear(struct listing *listing)
{
	free(listing->versions);
	json_decref(listing->answer);
	*listing = (struct listing){0};
}

static uint32_t aliases_of(const struct listing *listing, const char *id, const char *ret[PEER_ALIASES_MAX])
{
	const json_t *alias;
	uint32_t count = 0;
	size_t i;

	json_array_foreach(json_object_get(listing->answer, "aliases"), i, alias) {
		if (count < PEER_ALIASES_MAX && strcmp(text_of(alias, "version"), id) == 0)
			ret[count++] = text_of(alias, "alias");
	}
	return count;
}

void listing_at(const struct listing *listing, size_t position, struct listed *ret)
{
	const json_t *from = listing->versions[position];
	const char *tier = text_of(from, "tier"), *id = text_of(from, "version");
	bool has_content = hex128_parse(text_of(from, "content"), ret->content.bytes) == 0;
	bool is_companion = hex128_parse(text_of(from, "companion_of"), ret->companion_of.bytes) == 0;

	if (hex128_parse(id, ret->id.bytes) < 0)
		ret->id = (struct version_id){0};
	ret->version = (struct peer_version){
		.version = &ret->id,
		.model = text_of(from, "model"),
		.tag = text_of(from, "tag"),
		.aliases = {ret->aliases, aliases_of(listing, id, ret->aliases)},
		.world = number_of(from, "world"),
		.bytes = number_of(from, "bytes"),
		.tier = *tier ? tier : tier_name(ON_DEVICE),
		.content = has_content ? &ret->content : NULL,
		.companion_of = is_companion ? &ret->companion_of : NULL,
	};
}

const char *listing_device(const struct listing *listing, size_t position, uint64_t rank)
{
	const json_t *part;
	size_t i;

	json_array_foreach(json_object_get(listing->versions[position], "parts"), i, part) {
		if (number_of(part, "rank") == rank && strcmp(text_of(part, "state"), "ready") == 0)
			return text_of(part, "device");
	}
	return NULL;
}

/* Returns the id that an alias of the model names, or NULL. */
static const char *id_of_alias(const struct listing *listing, const struct ref *ref)
{
	const json_t *alias;
	size_t i;

	json_array_foreach(json_object_get(listing->answer, "aliases"), i, alias) {
		if (strcmp(text_of(alias, "model"), ref->model) == 0 &&
		    strcmp(text_of(alias, "alias"), ref->name) == 0)
			return text_of(alias, "version");
	}
	return NULL;
}

int64_t listing_find(const struct listing *listing, const char *ref, struct error *error)
{
	char text[VERSION_ID_TEXT];
	const char *why, *id;
	struct ref parsed;

	if (ref_parse(ref, &parsed, &why) < 0)
		return error_set(error, -EINVAL, NULL, "\"%s\" %s", ref, why);
	if (parsed.has_id)
		hex128_format(parsed.id.bytes, text);
	id = parsed.has_id ? text : id_of_alias(listing, &parsed);
	for (size_t i = 0; i < listing->count; i++) {
		const json_t *version = listing->versions[i];

		if (id ? strcmp(text_of(version, "version"), id) == 0
		       : strcmp(text_of(version, "model"), parsed.model) == 0 &&
				    strcmp(text_of(version, "tag"), parsed.name) == 0)
			return (int64_t)i;
	}
	return error_set(error, -ENOENT, NULL,
			 "there is no version %s that is ready and that other nodes may take", ref);
}

/* ---- the connection ---- */

void gpuwmd_begin(struct gpuwmd *gpuwmd, const char *socket, gpuwm_lost_fn *lost, void *lost_data)
{
	*gpuwmd = (struct gpuwmd){.socket = socket, .lost = lost, .lost_data = lost_data};
	pthread_mutex_init(&gpuwmd->lock, NULL);
}

void gpuwmd_end(struct gpuwmd *gpuwmd)
{
	gpuwmd->client = gpuwm_close(gpuwmd->client);
	pthread_mutex_destroy(&gpuwmd->lock);
}

int gpuwmd_error(struct error *error)
{
	const struct gpuwm_error *last = gpuwm_error();

	return error_set(error, last->code, last->detail, "%s", last->message);
}

int gpuwmd_client(struct gpuwmd *gpuwmd, struct gpuwm_client **ret_client, struct error *error)
{
	struct gpuwm_connect_options options = GPUWM_OPTIONS(struct gpuwm_connect_options);
	int r = 0;

	options.socket = gpuwmd->socket;
	options.name = "gpuwm-peer";
	options.restart_ms = GPUWMD_RESTART_MS;
	options.lost = gpuwmd->lost;
	options.lost_data = gpuwmd->lost_data;
	pthread_mutex_lock(&gpuwmd->lock);
	if (!gpuwmd->client && gpuwm_connect(&options, &gpuwmd->client) < 0)
		r = gpuwmd_error(error);
	*ret_client = gpuwmd->client;
	pthread_mutex_unlock(&gpuwmd->lock);
	return r;
}

int gpuwmd_list(struct gpuwmd *gpuwmd, struct listing *ret, struct error *error)
{
	struct gpuwm_client *client;
	char *json;
	int r = gpuwmd_client(gpuwmd, &client, error);

	if (r < 0)
		return r;
	if (gpuwm_query(client, "list", NULL, &json) < 0)
		return gpuwmd_error(error);
	r = listing_read(json, ret, error);
	free(json);
	return r;
}
