/* The part of libnvidia-ml.so.1 that tells devices and their memory. It shows
 * every device, whatever CUDA_VISIBLE_DEVICES says, as the real one does. */
#include "call.h"
#include "machine.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum nvml_result {
	NVML_SUCCESS = 0,
	NVML_ERROR_UNINITIALIZED = 1,
	NVML_ERROR_INVALID_ARGUMENT = 2,
	NVML_ERROR_NOT_FOUND = 6,
	NVML_ERROR_INSUFFICIENT_SIZE = 7,
	NVML_ERROR_GPU_IS_LOST = 15,
};

typedef struct nvml_device *nvml_device; /* 1 + the device's number */

struct nvml_memory {
	unsigned long long total, free, used;
};

static int uses;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* NVML_CALL(name, (parameters), (arguments)) { body }, as DRIVER_CALL. */
#define NVML_CALL(name, parameters, arguments)                                                                 \
	static int body_##name parameters;                                                                     \
	__attribute__((visibility("default"))) int name parameters;                                            \
	int name parameters                                                                                    \
	{                                                                                                      \
		int result_ = nvml_enter(#name);                                                               \
		if (result_ == NVML_SUCCESS) {                                                                 \
			result_ = body_##name arguments;                                                       \
			pthread_mutex_unlock(&lock);                                                           \
		}                                                                                              \
		return call_log(#name, result_);                                                               \
	}                                                                                                      \
	static int body_##name parameters

static int nvml_enter(const char *name)
{
	int result = call_fault(name);

	if (result)
		return result;
	pthread_mutex_lock(&lock);
	if (uses || strncmp(name, "nvmlInit", 8) == 0)
		return NVML_SUCCESS;
	pthread_mutex_unlock(&lock);
	return NVML_ERROR_UNINITIALIZED;
}

static nvml_device device_of(int number)
{
	return (nvml_device)(uintptr_t)(number + 1);
}

/* -1: none. */
static int number_of(nvml_device device)
{
	uintptr_t number = (uintptr_t)device;

	return number >= 1 && number <= (uintptr_t)machine()->device_count ? (int)number - 1 : -1;
}

NVML_CALL(nvmlInit_v2, (void), ())
{
	uses++;
	return NVML_SUCCESS;
}

NVML_CALL(nvmlShutdown, (void), ())
{
	uses--;
	return NVML_SUCCESS;
}

NVML_CALL(nvmlDeviceGetCount_v2, (unsigned *count), (count))
{
	if (!count)
		return NVML_ERROR_INVALID_ARGUMENT;
	*count = (unsigned)machine()->device_count;
	return NVML_SUCCESS;
}

NVML_CALL(nvmlDeviceGetHandleByIndex_v2, (unsigned number, nvml_device *ret), (number, ret))
{
	if (!ret || number >= (unsigned)machine()->device_count)
		return NVML_ERROR_INVALID_ARGUMENT;
	*ret = device_of((int)number);
	return NVML_SUCCESS;
}

NVML_CALL(nvmlDeviceGetHandleByUUID, (const char *uuid, nvml_device *ret), (uuid, ret))
{
	char text[UUID_TEXT_BYTES];

	if (!uuid || !ret)
		return NVML_ERROR_INVALID_ARGUMENT;
	for (int i = 0; i < machine()->device_count; i++) {
		machine_uuid_text(i, text);
		if (strcasecmp(text, uuid) != 0 || machine_loss(i) == LOSS_ABSENT)
			continue;
		*ret = device_of(i);
		return NVML_SUCCESS;
	}
	return NVML_ERROR_NOT_FOUND;
}

static int text_copy(const char *text, char *ret, unsigned size)
{
	if (!ret)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (size < strlen(text) + 1)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	strcpy(ret, text);
	return NVML_SUCCESS;
}

NVML_CALL(nvmlDeviceGetUUID, (nvml_device device, char *ret, unsigned size), (device, ret, size))
{
	char text[UUID_TEXT_BYTES];

	if (number_of(device) < 0)
		return NVML_ERROR_INVALID_ARGUMENT;
	machine_uuid_text(number_of(device), text);
	return text_copy(text, ret, size);
}

NVML_CALL(nvmlDeviceGetName, (nvml_device device, char *ret, unsigned size), (device, ret, size))
{
	char text[64];

	if (number_of(device) < 0)
		return NVML_ERROR_INVALID_ARGUMENT;
	machine_name(number_of(device), text, sizeof(text));
	return text_copy(text, ret, size);
}

NVML_CALL(nvmlDeviceGetMemoryInfo, (nvml_device device, struct nvml_memory *ret), (device, ret))
{
	if (!ret || number_of(device) < 0)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (machine_loss(number_of(device)) == LOSS_BUS)
		return NVML_ERROR_GPU_IS_LOST;
	ret->total = machine()->memory;
	ret->used = memory_used(number_of(device));
	ret->free = ret->total - ret->used;
	return NVML_SUCCESS;
}

NVML_CALL(nvmlDeviceGetMigMode, (nvml_device device, unsigned *ret_now, unsigned *ret_pending),
	  (device, ret_now, ret_pending))
{
	if (!ret_now || !ret_pending || number_of(device) < 0)
		return NVML_ERROR_INVALID_ARGUMENT;
	*ret_now = *ret_pending = machine_loss(number_of(device)) == LOSS_MIG;
	return NVML_SUCCESS;
}
