#include "memory_kind.h"

#include "../base/limits.h"

#include <stddef.h>
#include <string.h>
#include <strings.h>

const struct memory_kind kind_host = {
	.name = "host",
	.device = DEVICE_HOST,
	.budget_percent = BUDGET_PERCENT_HOST,
	.can_look = true,
};

const struct memory_kind kind_cuda = {
	.name = "cuda",
	.prefixes = {"GPU-", "MIG-"},
	.budget_percent = BUDGET_PERCENT_CUDA,
	.is_gpu = true,
	.context_bytes = CONTEXT_BYTES,
};

/* What the rows above say of names, in words. */
#define NO_NAME "is neither \"host\" nor a UUID that begins with \"GPU-\" or \"MIG-\""
#define NO_UUID "is no UUID: it has 1 to 59 characters after \"GPU-\" or \"MIG-\""
#define UUID_CHARACTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-/"

const struct memory_kind *memory_kind_find(const char *name)
{
	size_t i = 0;

	while (memory_kinds[i] && strcmp(memory_kinds[i]->name, name) != 0)
		i++;
	return memory_kinds[i];
}

/* Returns what follows the kind's prefix in the device's name, or NULL. */
static const char *uuid_of(const struct memory_kind *kind, const char *device)
{
	for (const char *const *prefix = kind->prefixes; *prefix; prefix++)
		if (strncmp(device, *prefix, strlen(*prefix)) == 0)
			return device + strlen(*prefix);
	return NULL;
}

static bool has_device(const struct memory_kind *kind, const char *device)
{
	return kind->device ? strcmp(device, kind->device) == 0 : uuid_of(kind, device) != NULL;
}

const struct memory_kind *memory_kind_of(const char *device)
{
	size_t i = 0;

	while (memory_kinds[i] && !has_device(memory_kinds[i], device))
		i++;
	return memory_kinds[i];
}

const char *device_uuid(const char *device)
{
	const struct memory_kind *kind = memory_kind_of(device);

	return kind ? uuid_of(kind, device) : NULL;
}

bool device_same(const char *a, const char *b)
{
	const char *uuid = device_uuid(a), *other = device_uuid(b);

	return uuid && other ? strcasecmp(uuid, other) == 0 : strcmp(a, b) == 0;
}

const char *device_wrong(const char *text)
{
	const char *uuid = device_uuid(text);

	if (!uuid)
		return memory_kind_of(text) ? NULL : NO_NAME;
	if (!*uuid || strlen(text) > DEVICE_BYTES_MAX)
		return NO_UUID;
	if (uuid[strspn(uuid, UUID_CHARACTERS)])
		return "has a character other than letters, digits, '-' and '/'";
	return NULL;
}
