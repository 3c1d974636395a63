/* What NVML, the driver's management interface, says about a GPU. NVML needs no CUDA, and knows a
 * GPU by its UUID. */
#ifndef GPUWM_LOADER_NVML_H
#define GPUWM_LOADER_NVML_H

#include "../../base/errors.h"

#include <stdbool.h>
#include <stdint.h>

enum nvml_word {
	NVML_SILENT, /* there is no NVML, or its error says nothing about the GPU */
	NVML_THERE, /* NVML answers for the GPU */
	NVML_LOST, /* NVML says that the GPU is lost */
	NVML_ABSENT, /* NVML knows no GPU and no MIG device of this UUID */
	/* the GPU is divided into MIG devices now, so that the whole GPU is not a device any
	 * more */
	NVML_DIVIDED,
};

/* Returns what NVML says about the device `id`, a UUID with either prefix. For the last three
 * values it sets *why (-ENODEV). */
enum nvml_word nvml_ask(const char *id, struct error *why);

/* Sets *ret_bytes to the free bytes of the device's memory. Returns false if NVML does not say. */
bool nvml_free(const char *id, uint64_t *ret_bytes);

/* Sets ret_id to the UUID of NVML's GPU with this number, and *ret_divided to whether it is divided into MIG devices. Returns
 * false if there is no such GPU, or NVML does not say. */
bool nvml_gpu(unsigned number, char ret_id[DEVICE_BYTES_MAX + 1], bool *ret_divided);

#endif
