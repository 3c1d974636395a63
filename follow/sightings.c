#include "fleet.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *text_of(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? text : "";
}

static bool has(const json_t *object, const char *key, const char *text)
{
	return strcmp(text_of(object, key), text) == 0;
}

/* The element whose `key` is this text, of those of the model. */
static const json_t *find_element(const json_t *list, const char *array, const char *model, const char *key,
				  const char *text)
{
	const json_t *one;
	size_t i;

	json_array_foreach(json_object_get(list, array), i, one) {
		if (has(one, "model", model) && has(one, key, text))
			return one;
	}
	return NULL;
}

static int add_sighting(struct sightings *sightings, const json_t *lease)
{
	const char *address = text_of(lease, "address");
	const uint64_t number = (uint64_t)json_integer_value(json_object_get(lease, "lease"));
	struct sighting *one = NULL, *items;

	for (size_t i = 0; !one && i < sightings->count; i++) {
		if (strcmp(sightings->items[i].address, address) == 0)
			one = &sightings->items[i];
	}
	if (one && one->lease > number)
		return 0;
	if (!one) {
		items = realloc(sightings->items, (sightings->count + 1) * sizeof(*items));
		if (!items)
			return -ENOMEM;
		sightings->items = items;
		one = &items[sightings->count++];
	}
	snprintf(one->address, sizeof(one->address), "%s", address);
	one->lease = number;
	one->is_current = sightings->version[0] && has(lease, "version", sightings->version);
	return 0;
}

int sightings_read(const json_t *list, const json_t *clients, const char *model, const char *name,
		   struct sightings *ret)
{
	const json_t *alias = find_element(list, "aliases", model, "alias", name), *version, *client, *lease;
	size_t i, k;
	int r = 0;

	*ret = (struct sightings){0};
	if (alias)
		version = find_element(list, "versions", model, "version", text_of(alias, "version"));
	else
		version = find_element(list, "versions", model, "tag", name);
	snprintf(ret->version, sizeof(ret->version), "%s", text_of(version, "version"));
	snprintf(ret->tag, sizeof(ret->tag), "%s", text_of(version, "tag"));
	json_array_foreach(json_object_get(clients, "clients"), i, client) {
		json_array_foreach(json_object_get(client, "leases"), k, lease) {
			if (r == 0 && has(lease, "model", model) && *text_of(lease, "address") &&
			    !json_is_true(json_object_get(lease, "parked")))
				r = add_sighting(ret, lease);
		}
	}
	if (r < 0)
		sightings_clear(ret);
	return r;
}

void sightings_clear(struct sightings *sightings)
{
	free(sightings->items);
	*sightings = (struct sightings){0};
}
