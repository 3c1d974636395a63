#include "answer.h"

#include "exit.h"
#include "../../proto/memory_kind.h"

#include "output.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UUID_SHOWN 12 /* "GPU-" and eight digits */

/* text: the name of a kind, a colon, and a number: the device of that kind with this number. */
static int number_resolve(const struct gpuwm_device *devices, size_t count, const char *text,
			  const struct memory_kind *kind, const char **ret_device)
{
	const char *number = strchr(text, ':') + 1;
	size_t wanted, seen = 0;
	char remedy[64], *end;

	wanted = strtoul(number, &end, 10);
	snprintf(remedy, sizeof(remedy), "write %s:0, %s:1, ...", kind->name, kind->name);
	if (end == number || *end != '\0')
		return exit_with(EXIT_USAGE, remedy, "'%s' is not a device", text);
	for (size_t i = 0; i < count; i++) {
		if (memory_kind_of(devices[i].id) != kind || seen++ != wanted)
			continue;
		*ret_device = devices[i].id;
		return EXIT_DONE;
	}
	return exit_with(EXIT_NOT_FOUND,
			 count ? "gpuwmctl status lists the devices"
			       : "gpuwmd knows its GPUs only after its first standby loader has started",
			 "there is no %s: gpuwmd has %zu GPUs", text, seen);
}

int device_resolve(struct gpuwm_client *client, const char *text, const char **ret_device)
{
	const struct gpuwm_device *devices;
	size_t count = gpuwm_devices(client, &devices), found = 0;
	const char *colon = strchr(text, ':'), *uuid;
	const struct memory_kind *kind = NULL;
	char name[16]; /* "cuda" in "cuda:0" */

	if (colon && (size_t)(colon - text) < sizeof(name)) {
		snprintf(name, sizeof(name), "%.*s", (int)(colon - text), text);
		kind = memory_kind_find(name);
	}
	if (kind && !kind->device)
		return number_resolve(devices, count, text, kind, ret_device);
	for (size_t i = 0; i < count; i++) {
		if (strcmp(devices[i].id, text) == 0) {
			*ret_device = devices[i].id;
			return EXIT_DONE;
		}
		/* A prefix alone names nothing, even where there is one GPU only. */
		uuid = device_uuid(devices[i].id);
		if (uuid && strlen(text) > (size_t)(uuid - devices[i].id) &&
		    strncmp(devices[i].id, text, strlen(text)) == 0) {
			*ret_device = devices[i].id;
			found++;
		}
	}
	if (found > 1)
		return exit_with(EXIT_USAGE, "write more of the UUID",
				 "'%s' is the beginning of %zu devices' names", text, found);
	if (found == 0)
		*ret_device = text; /* gpuwmd judges: it may not know its devices yet */
	return EXIT_DONE;
}

void device_short(const char *device, char ret_text[DEVICE_TEXT])
{
	const bool is_short = device_uuid(device) && output_form() != OUTPUT_WIDE;

	snprintf(ret_text, DEVICE_TEXT, "%.*s", is_short ? UUID_SHOWN : DEVICE_TEXT - 1, device);
}

void device_short_join(const json_t *devices, char *ret_text, size_t size)
{
	json_t *names = json_array();
	const json_t *device;
	char name[DEVICE_TEXT];
	size_t i;

	json_array_foreach(devices, i, device) {
		device_short(json_string_value(device) ? json_string_value(device) : "", name);
		json_array_append_new(names, json_string(name));
	}
	answer_join(names, ret_text, size);
	json_decref(names);
}
