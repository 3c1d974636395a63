/* What NVML, the driver's interface for management, says of a GPU. It needs no CUDA, and it is asked by UUID. */
#ifndef GPUWM_LOADER_NVML_H
#define GPUWM_LOADER_NVML_H

#include "../proto/errors.h"

#include <stdbool.h>
#include <stdint.h>

enum nvml_word {
	NVML_SILENT, /* there is no NVML, or it fails with what says nothing about the GPU */
	NVML_THERE, /* it answers for the GPU */
	NVML_LOST, /* it says that the GPU is lost; *why says how */
	NVML_ABSENT, /* it knows no GPU and no MIG device of this UUID; *why says so */
	NVML_DIVIDED, /* the GPU is divided into MIG devices now, and is none itself; *why says so */
};

/* The device `id`, with either prefix. *why: an error with the code -ENODEV, set for the last three. */
enum nvml_word nvml_ask(const char *id, struct error *why);

/* How many bytes of its memory are free. False: NVML does not tell. */
bool nvml_free(const char *id, uint64_t *ret_bytes);

#endif
