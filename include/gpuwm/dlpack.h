/* The structs of DLPack that gpuwm_dlpack and gpuwm_dlpack_versioned fill.
 *
 * The binary interface is that of https://github.com/dmlc/dlpack (1.x, and the version before it).
 * A program that has that header from its framework includes it before this one, which then
 * declares nothing. */
#ifndef GPUWM_DLPACK_H
#define GPUWM_DLPACK_H

#ifndef DLPACK_DLPACK_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { /* DLDevice.device_type */
       kDLCPU = 1,
       kDLCUDA = 2,
};

enum { /* DLDataType.code */
       kDLInt = 0,
       kDLUInt = 1,
       kDLFloat = 2,
       kDLBfloat = 4,
       kDLComplex = 5,
       kDLBool = 6,
       /* Since DLPack 1.1, in versioned exports: */
       kDLFloat8_e4m3fn = 10,
       kDLFloat8_e4m3fnuz = 11,
       kDLFloat8_e5m2 = 12,
       kDLFloat8_e5m2fnuz = 13,
       kDLFloat8_e8m0fnu = 14,
       kDLFloat4_e2m1fn = 17,
};

typedef struct DLDevice {
	int32_t device_type;
	int32_t device_id; /* cuda: this process's number of the device */
} DLDevice;

typedef struct DLDataType {
	uint8_t code;
	uint8_t bits;
	uint16_t lanes; /* 1; 2 for kDLFloat4_e2m1fn: an element is a pair in one byte */
} DLDataType;

typedef struct DLTensor {
	void *data; /* NULL: the tensor has no bytes */
	DLDevice device;
	int32_t ndim;
	DLDataType dtype;
	int64_t *shape; /* ndim entries */
	int64_t *strides; /* ndim entries, in elements; never NULL here */
	uint64_t byte_offset; /* 0 */
} DLTensor;

typedef struct DLManagedTensor {
	DLTensor dl_tensor;
	void *manager_ctx;
	void (*deleter)(struct DLManagedTensor *self);
} DLManagedTensor;

typedef struct DLPackVersion {
	uint32_t major, minor;
} DLPackVersion;

#define DLPACK_FLAG_BITMASK_READ_ONLY 1u

typedef struct DLManagedTensorVersioned {
	DLPackVersion version;
	void *manager_ctx;
	void (*deleter)(struct DLManagedTensorVersioned *self);
	uint64_t flags;
	DLTensor dl_tensor;
} DLManagedTensorVersioned;

#ifdef __cplusplus
}
#endif

#endif
#endif
