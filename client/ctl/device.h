/* Devices as people write and read them. */
#ifndef GPUWM_CTL_DEVICE_H
#define GPUWM_CTL_DEVICE_H

#include "answer.h"

/* What people may write for a device: "host", a GPU's UUID or its beginning
 * where that is enough, or "cuda:N", the N-th GPU in the daemon's order.
 * What none of gpuwmd's devices matches is left as it is, for gpuwmd to refuse.
 * EXIT_DONE with a text that lives as long as the client and `text`, or an exit
 * code after printing why. */
int device_resolve(struct gpuwm_client *client, const char *text, const char **ret_device);
/* The same for each --device. */
int device_resolve_all(struct gpuwm_client *client, const struct arguments *arguments,
		       const char *ret_devices[DEVICES_MAX]);
#define DEVICE_TEXT 64 /* a UUID, and more */
/* A UUID's first digits, enough for people, and all of it with -o wide; others as they are. */
void device_short(const char *device, char ret_text[DEVICE_TEXT]);
/* The same for an array of them, joined with commas, as many as fit. */
void device_short_join(const json_t *devices, char *ret_text, size_t size);

#endif
