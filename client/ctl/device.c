#include "device.h"

#include "exit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int cuda_resolve(const struct gpuwm_device *devices, size_t count, const char *text,
			const char **ret_device)
{
	size_t wanted, seen = 0;
	char *end;

	wanted = strtoul(text + strlen("cuda:"), &end, 10);
	if (end == text + strlen("cuda:") || *end != '\0')
		return exit_with(EXIT_USAGE, "write cuda:0, cuda:1, ...", "'%s' is not a device", text);
	for (size_t i = 0; i < count; i++) {
		if (!devices[i].is_cuda || seen++ != wanted)
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

	if (strncmp(text, "cuda:", strlen("cuda:")) == 0)
		return cuda_resolve(devices, count, text, ret_device);
	for (size_t i = 0; i < count; i++) {
		if (strcmp(devices[i].id, text) == 0) {
			*ret_device = devices[i].id;
			return EXIT_DONE;
		}
		/* "GPU-" alone names nothing, even where there is one GPU only. */
		if (devices[i].is_cuda && strlen(text) > strlen("GPU-") &&
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

int device_resolve_all(struct gpuwm_client *client, const struct arguments *arguments,
		       const char *ret_devices[DEVICES_MAX])
{
	int code = EXIT_DONE;

	for (size_t i = 0; code == EXIT_DONE && i < arguments->device_count; i++)
		code = device_resolve(client, arguments->devices[i], &ret_devices[i]);
	return code;
}

void device_short(const char *device, char ret_text[16])
{
	int digits = strncmp(device, "GPU-", 4) == 0 || strncmp(device, "MIG-", 4) == 0 ? 12 : 15;

	snprintf(ret_text, 16, "%.*s", digits, device);
}

void device_short_join(const json_t *devices, char *ret_text, size_t size)
{
	json_t *names = json_array();
	const json_t *device;
	char name[16];
	size_t i;

	json_array_foreach(devices, i, device) {
		device_short(json_string_value(device) ? json_string_value(device) : "", name);
		json_array_append_new(names, json_string(name));
	}
	answer_join(names, ret_text, size);
	json_decref(names);
}
