#include "driver.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

static int visible[DEVICES_MAX]; /* ordinal to physical */
static int visible_count;
static pid_t initialised_by; /* 0: cuInit was not called */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

CUresult driver_enter(const char *name, enum needs needs)
{
	CUresult result = (CUresult)call_fault(name);

	if (result != CUDA_SUCCESS) {
		/* These end a real context; it stays broken. */
		if (result == CUDA_ERROR_ILLEGAL_ADDRESS || result == CUDA_ERROR_LAUNCH_FAILED ||
		    result == CUDA_ERROR_ECC_UNCORRECTABLE)
			context_break(result);
		return result;
	}
	/* Before the lock, which another thread may have held when this process was forked. */
	if (initialised_by && initialised_by != getpid())
		return CUDA_ERROR_NOT_INITIALIZED;
	pthread_mutex_lock(&lock);
	if (needs != NEEDS_NOTHING && !initialised_by)
		result = CUDA_ERROR_NOT_INITIALIZED;
	else if (needs == NEEDS_CONTEXT)
		result = context_check(NULL);
	if (result == CUDA_SUCCESS)
		result = captures_check(name);
	if (result != CUDA_SUCCESS)
		pthread_mutex_unlock(&lock);
	return result;
}

CUresult driver_leave(CUresult result)
{
	pthread_mutex_unlock(&lock);
	return result;
}

void driver_lock(void)
{
	pthread_mutex_lock(&lock);
}

void driver_unlock(void)
{
	pthread_mutex_unlock(&lock);
}

void driver_nap(void)
{
	driver_unlock();
	nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
	driver_lock();
}

/* "0", "GPU-fa4e…", or an unambiguous beginning of a UUID; -1: names no device. */
static int physical_of(const char *text)
{
	char uuid[UUID_TEXT_BYTES], *end;
	long number = strtol(text, &end, 10);

	if (end != text && !*end)
		return number >= 0 && number < machine()->device_count ? (int)number : -1;
	for (int i = 0; strlen(text) > 4 && i < machine()->device_count; i++) {
		machine_uuid_text(i, uuid);
		if (strncasecmp(text, uuid, strlen(text)) == 0)
			return i;
	}
	return -1;
}

static bool is_seen(int physical)
{
	const enum loss loss = machine_loss(physical);

	return loss != LOSS_ABSENT && loss != LOSS_MIG;
}

/* As the driver does: the list ends before the first entry that names nothing. */
static void visible_read(const char *list)
{
	char copy[1024], *rest = copy, *entry;
	int physical;

	snprintf(copy, sizeof(copy), "%s", list);
	while ((entry = strsep(&rest, ",")) && visible_count < DEVICES_MAX) {
		physical = physical_of(entry);
		if (physical < 0 || !is_seen(physical) || device_ordinal(physical) >= 0)
			return;
		visible[visible_count++] = physical;
	}
}

int device_count(void)
{
	return visible_count;
}

int device_physical(int ordinal)
{
	return ordinal >= 0 && ordinal < visible_count ? visible[ordinal] : -1;
}

int device_ordinal(int physical)
{
	for (int i = 0; i < visible_count; i++)
		if (visible[i] == physical)
			return i;
	return -1;
}

CUresult device_loss(int ordinal)
{
	switch (machine_loss(device_physical(ordinal))) {
	case LOSS_NONE:
		return CUDA_SUCCESS;
	case LOSS_ECC:
		return CUDA_ERROR_ECC_UNCORRECTABLE;
	default:
		return CUDA_ERROR_DEVICE_UNAVAILABLE;
	}
}

/* Without a list: all of them. */
static void visible_all(void)
{
	for (int i = 0; i < machine()->device_count; i++)
		if (is_seen(i))
			visible[visible_count++] = i;
}

DRIVER_CALL(cuInit, NEEDS_NOTHING, (unsigned flags), (flags))
{
	const char *list = getenv("CUDA_VISIBLE_DEVICES");

	if (flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (initialised_by)
		return CUDA_SUCCESS;
	if (list)
		visible_read(list);
	else
		visible_all();
	if (!visible_count)
		return CUDA_ERROR_NO_DEVICE;
	initialised_by = getpid();
	return CUDA_SUCCESS;
}

DRIVER_CALL(cuDriverGetVersion, NEEDS_NOTHING, (int *version), (version))
{
	if (!version)
		return CUDA_ERROR_INVALID_VALUE;
	*version = CUDA_VERSION;
	return CUDA_SUCCESS;
}

DRIVER_CALL(cuDeviceGetCount, NEEDS_INIT, (int *count), (count))
{
	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	*count = visible_count;
	return CUDA_SUCCESS;
}

DRIVER_CALL(cuDeviceGet, NEEDS_INIT, (CUdevice * device, int ordinal), (device, ordinal))
{
	if (!device)
		return CUDA_ERROR_INVALID_VALUE;
	if (device_physical(ordinal) < 0)
		return CUDA_ERROR_INVALID_DEVICE;
	*device = ordinal;
	return CUDA_SUCCESS;
}

DRIVER_CALL(cuDeviceGetUuid_v2, NEEDS_INIT, (CUuuid * uuid, CUdevice device), (uuid, device))
{
	int physical = device_physical(device);

	if (!uuid)
		return CUDA_ERROR_INVALID_VALUE;
	if (physical < 0)
		return CUDA_ERROR_INVALID_DEVICE;
	machine_uuid(physical, (uint8_t *)uuid->bytes);
	return CUDA_SUCCESS;
}

/* The name that programs built before CUDA 11.4 look up. */
#undef cuDeviceGetUuid
__attribute__((alias("cuDeviceGetUuid_v2"), visibility("default"))) CUresult cuDeviceGetUuid(CUuuid *uuid,
											     CUdevice device);

DRIVER_CALL(cuDeviceGetName, NEEDS_INIT, (char *name, int size, CUdevice device), (name, size, device))
{
	int physical = device_physical(device);

	if (!name || size <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (physical < 0)
		return CUDA_ERROR_INVALID_DEVICE;
	machine_name(physical, name, size);
	return CUDA_SUCCESS;
}

DRIVER_CALL(cuDeviceTotalMem_v2, NEEDS_INIT, (size_t * bytes, CUdevice device), (bytes, device))
{
	if (!bytes)
		return CUDA_ERROR_INVALID_VALUE;
	if (device_physical(device) < 0)
		return CUDA_ERROR_INVALID_DEVICE;
	*bytes = machine()->memory;
	return CUDA_SUCCESS;
}

static int attribute(CUdevice_attribute name)
{
	switch (name) {
	case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
	/* Says 1 on a machine whose cuMemCreate then refuses the type. */
	case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED:
		return 1;
	case CU_DEVICE_ATTRIBUTE_MPS_ENABLED:
		return machine()->mps;
	case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS:
		return machine()->words;
	case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
		return 9;
	case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
		return 132;
	case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
		return 3;
	default:
		return 0;
	}
}

DRIVER_CALL(cuDeviceGetAttribute, NEEDS_INIT, (int *value, CUdevice_attribute name, CUdevice device),
	    (value, name, device))
{
	if (!value || name < 1 || name >= CU_DEVICE_ATTRIBUTE_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	if (device_physical(device) < 0)
		return CUDA_ERROR_INVALID_DEVICE;
	*value = attribute(name);
	return CUDA_SUCCESS;
}

DRIVER_CALL(cuDeviceCanAccessPeer, NEEDS_INIT, (int *ret, CUdevice device, CUdevice peer), (ret, device, peer))
{
	if (!ret)
		return CUDA_ERROR_INVALID_VALUE;
	if (device_physical(device) < 0 || device_physical(peer) < 0)
		return CUDA_ERROR_INVALID_DEVICE;
	*ret = machine()->peers && device != peer;
	return CUDA_SUCCESS;
}
