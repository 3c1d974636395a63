#include "dlpack.h"

#include "attach.h"
#include "../../../proto/index/dtype.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* 1.1 brought the codes of fp8 and fp4. Nothing that came later is used. */
#define DLPACK_MAJOR 1
#define DLPACK_MINOR 1

/* One allocation, which the deleter frees. */
struct export
{
	union {
		struct DLManagedTensor plain;
		struct DLManagedTensorVersioned versioned;
	};
	struct keep *keep;
	int64_t dims[]; /* shape, then strides */
};

_Static_assert(sizeof(struct DLManagedTensor) == 64 && sizeof(struct DLManagedTensorVersioned) == 80 &&
		       offsetof(struct DLManagedTensorVersioned, dl_tensor) == 32,
	       "DLPack's structs are of another layout");

/* ---- what a consumer reads ----------------------------------------------- */

/* GGUF's types have no export: a shape that counts bytes would hide where a block begins. */
static const DLDataType old_types[DTYPE_END] = {
	[DTYPE_BOOL] = {kDLBool, 8, 1},    [DTYPE_U8] = {kDLUInt, 8, 1},      [DTYPE_I8] = {kDLInt, 8, 1},
	[DTYPE_I16] = {kDLInt, 16, 1},     [DTYPE_U16] = {kDLUInt, 16, 1},    [DTYPE_F16] = {kDLFloat, 16, 1},
	[DTYPE_BF16] = {kDLBfloat, 16, 1}, [DTYPE_I32] = {kDLInt, 32, 1},     [DTYPE_U32] = {kDLUInt, 32, 1},
	[DTYPE_F32] = {kDLFloat, 32, 1},   [DTYPE_C64] = {kDLComplex, 64, 1}, [DTYPE_F64] = {kDLFloat, 64, 1},
	[DTYPE_I64] = {kDLInt, 64, 1},     [DTYPE_U64] = {kDLUInt, 64, 1},
};
/* Only versioned exports have these: an old consumer may take a code that it does not know for another type. fp6 is not here, since no
 * consumer reads it packed. */
static const DLDataType versioned_types[DTYPE_END] = {
	[DTYPE_F4] = {kDLFloat4_e2m1fn, 4, 2},
	[DTYPE_F8_E5M2] = {kDLFloat8_e5m2, 8, 1},
	[DTYPE_F8_E4M3] = {kDLFloat8_e4m3fn, 8, 1},
	[DTYPE_F8_E8M0] = {kDLFloat8_e8m0fnu, 8, 1},
	[DTYPE_F8_E4M3FNUZ] = {kDLFloat8_e4m3fnuz, 8, 1},
	[DTYPE_F8_E5M2FNUZ] = {kDLFloat8_e5m2fnuz, 8, 1},
};

/* Whether the last dimension is whole bytes: F4 of [2, 8] has rows of 4 bytes, F4 of [2, 3] has none. */
static bool has_whole_rows(const struct gpuwm_tensor *tensor)
{
	return dtype_element_bytes(tensor->dtype) > 0 ||
	       tensor->shape[tensor->ndim - 1] % dtype_block(tensor->dtype).elements == 0;
}

/* Sets the shape and strides of a tensor whose elements share bytes. Such a tensor is dense, the last dimension fastest. That dimension
 * counts bytes, if the rows are whole bytes. Otherwise all is one dimension. */
static void dltensor_pack_dims(const struct gpuwm_tensor *tensor, struct DLTensor *to)
{
	const struct dtype_block block = dtype_block(tensor->dtype);
	const uint32_t last = tensor->ndim - 1;

	if (!has_whole_rows(tensor)) {
		to->ndim = 1;
		to->shape[0] = (int64_t)tensor->bytes;
		to->strides[0] = 1;
		return;
	}
	to->shape[last] = to->shape[last] / block.elements * block.bytes;
	for (uint32_t i = 0; i < last; i++)
		to->strides[i] = to->strides[i] / block.elements * block.bytes;
}

/* Returns 1 if the export shows the tensor's bytes, and 0 if it has the tensor's own type. */
static int dltensor_put(const struct dlpack_source *from, bool versioned, int64_t *dims, struct DLTensor *to)
{
	const struct gpuwm_tensor *tensor = from->tensor;
	DLDataType type = old_types[tensor->dtype];

	if (versioned && type.bits == 0 && has_whole_rows(tensor))
		type = versioned_types[tensor->dtype];
	*to = (struct DLTensor){
		.data = tensor->bytes > 0 ? (void *)tensor->data : NULL,
		.device = {from->device->ops->dlpack_device, from->device->ordinal},
		.dtype = type.bits > 0 ? type : (DLDataType){kDLUInt, 8, 1},
		.shape = dims,
		.strides = dims + tensor->ndim,
	};
	to->ndim = (int32_t)tensor->ndim;
	for (uint32_t i = 0; i < tensor->ndim; i++) {
		to->shape[i] = (int64_t)tensor->shape[i];
		to->strides[i] = tensor->strides[i];
	}
	if (dtype_element_bytes(tensor->dtype) == 0)
		dltensor_pack_dims(tensor, to);
	return type.bits == 0;
}

/* Python's own functions, where this process has them: looked up before there is a capsule, for its destructor may
 * run where the loader's lock is not to be waited for. */
static struct {
	int (*is_valid)(void *capsule, const char *name);
	void *(*get_pointer)(void *capsule, const char *name);
} python; /* atomic, each */

static void find_python(void)
{
	void *is_valid;

	if (__atomic_load_n(&python.is_valid, __ATOMIC_ACQUIRE))
		return;
	is_valid = dlsym(RTLD_DEFAULT, "PyCapsule_IsValid");
	__atomic_store_n((void **)&python.get_pointer, dlsym(RTLD_DEFAULT, "PyCapsule_GetPointer"),
			 __ATOMIC_RELAXED);
	__atomic_store_n((void **)&python.is_valid, is_valid, __ATOMIC_RELEASE);
}

/* ---- the export ---------------------------------------------------------- */

static void export_free(struct export *export)
{
	keep_unuse(export->keep);
	free(export);
}

static void delete_plain(struct DLManagedTensor *self)
{
	export_free(self->manager_ctx);
}

static void delete_versioned(struct DLManagedTensorVersioned *self)
{
	export_free(self->manager_ctx);
}

static int export_new(const struct dlpack_source *from, struct export **ret, struct error *error)
{
	const struct gpuwm_tensor *tensor = from->tensor;
	char dtype[DTYPE_TEXT_BYTES];
	struct export *export;
	int r;

	if (dtype_family(tensor->dtype) != DTYPE_SAFETENSORS)
		return error_set(error, -ENOTSUP, "take its bytes (memoryview() or tobytes() in Python)",
				 "tensor %.512s is %s, which DLPack has no type for", tensor->name,
				 dtype_text(tensor->dtype, dtype));
	for (uint32_t i = 0; i < tensor->ndim; i++) {
		if (tensor->shape[i] > INT64_MAX)
			return error_set(error, -EOVERFLOW, NULL, "tensor %.512s has a dimension of %llu",
					 tensor->name, (unsigned long long)tensor->shape[i]);
	}
	find_python();
	export = calloc(1, sizeof(*export) + 2 * tensor->ndim * sizeof(export->dims[0]));
	if (!export)
		return error_set(error, -ENOMEM, NULL, "out of memory for an export");
	export->keep = from->keep;
	r = keep_use(from->keep, error);
	if (r < 0)
		free(export);
	else
		*ret = export;
	return r;
}

int dlpack_export(const struct dlpack_source *from, struct DLManagedTensor **ret, struct error *error)
{
	struct export *export;
	int r = export_new(from, &export, error);

	if (r < 0)
		return r;
	export->plain.manager_ctx = export;
	export->plain.deleter = delete_plain;
	*ret = &export->plain;
	return dltensor_put(from, false, export->dims, &export->plain.dl_tensor);
}

int dlpack_export_versioned(const struct dlpack_source *from, struct DLManagedTensorVersioned **ret,
			    struct error *error)
{
	struct export *export;
	int r = export_new(from, &export, error);

	if (r < 0)
		return r;
	export->versioned.version = (DLPackVersion){DLPACK_MAJOR, DLPACK_MINOR};
	export->versioned.flags = from->writable ? 0 : DLPACK_FLAG_BITMASK_READ_ONLY;
	export->versioned.manager_ctx = export;
	export->versioned.deleter = delete_versioned;
	*ret = &export->versioned;
	return dltensor_put(from, true, export->dims, &export->versioned.dl_tensor);
}

/* ---- capsules ------------------------------------------------------------ */

void gpuwm_dlpack_capsule_end(void *capsule)
{
	find_python();
	if (!python.is_valid || !python.get_pointer)
		return;
	/* One that was consumed has another name, and its consumer calls the deleter. */
	if (python.is_valid(capsule, "dltensor")) {
		struct DLManagedTensor *plain = python.get_pointer(capsule, "dltensor");

		plain->deleter(plain);
	} else if (python.is_valid(capsule, "dltensor_versioned")) {
		struct DLManagedTensorVersioned *versioned = python.get_pointer(capsule, "dltensor_versioned");

		versioned->deleter(versioned);
	}
}

/* ---- of a mapping -------------------------------------------------------- */

static int mapping_source(struct gpuwm_mapping *mapping, struct gpuwm_tensor *tensor, struct dlpack_source *ret,
			  struct error *error)
{
	int r = fork_check(&mapping->hook, error);

	if (r == 0)
		r = mapped_part_check(mapping->part, error);
	if (r == 0)
		r = mapped_part_holds(mapping->part, tensor, error);
	if (r < 0)
		return r;
	*ret = (struct dlpack_source){
		.device = &mapping->part->device,
		.tensor = tensor,
		.writable = mapping->part->device.private_writes,
		.keep = &mapping->keep,
	};
	return 0;
}

int gpuwm_dlpack(struct gpuwm_mapping *mapping, const struct gpuwm_tensor *given, struct DLManagedTensor **ret)
{
	struct gpuwm_tensor tensor = *given;
	struct dlpack_source from;
	struct error error;
	int r = mapping_source(mapping, &tensor, &from, &error);

	if (r == 0)
		r = dlpack_export(&from, ret, &error);
	return r < 0 ? client_fail(&error) : r;
}

int gpuwm_dlpack_versioned(struct gpuwm_mapping *mapping, const struct gpuwm_tensor *given,
			   struct DLManagedTensorVersioned **ret)
{
	struct gpuwm_tensor tensor = *given;
	struct dlpack_source from;
	struct error error;
	int r = mapping_source(mapping, &tensor, &from, &error);

	if (r == 0)
		r = dlpack_export_versioned(&from, ret, &error);
	return r < 0 ? client_fail(&error) : r;
}

static int export_many(struct gpuwm_mapping *mapping, const uint64_t *positions, size_t count,
		       struct DLManagedTensor **made, struct error *error)
{
	struct gpuwm_tensor tensor;
	struct dlpack_source from;
	size_t done = 0;
	int r = 0;

	while (r >= 0 && done < count) {
		r = tensor_of(&mapping->part->index.view, positions[done], &tensor, error);
		if (r == 0)
			r = mapping_source(mapping, &tensor, &from, error);
		if (r == 0)
			r = dlpack_export(&from, &made[done], error);
		done += r >= 0;
	}
	while (r < 0 && done-- > 0)
		made[done]->deleter(made[done]);
	return r < 0 ? r : 0;
}

int gpuwm_dlpack_many(struct gpuwm_mapping *mapping, const uint64_t *positions, size_t count,
		      struct DLManagedTensor **ret)
{
	struct DLManagedTensor **made = calloc(count + 1, sizeof(struct DLManagedTensor *));
	struct error error;
	int r = made ? export_many(mapping, positions, count, made, &error)
		     : error_set(&error, -ENOMEM, NULL, "out of memory for %zu exports", count);

	if (r == 0 && count > 0)
		memcpy(ret, made, count * sizeof(struct DLManagedTensor *));
	free(made);
	return r < 0 ? client_fail(&error) : 0;
}
