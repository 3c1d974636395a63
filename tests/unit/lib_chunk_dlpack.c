/* Exports of tensors in chunks: what a consumer reads, and how long they hold the chunk. */
#include "include/gpuwm/dlpack.h"
#include "tests/support/any/between.h"
#include "tests/support/any/until.h"
#include "tests/support/lib/pools.h"

#define OWNER 0
#define READER 1
#define NAMES_READER (&(const struct gpuwm_readers){UINT32_C(1) << READER, 0})

static struct shared_region shared;
static struct gpuwm_region *pool, *reader;
static struct DLManagedTensor *tensor, *other;
static struct DLManagedTensorVersioned *versioned;

static void begin(void)
{
	share(&shared, &(struct shared_wish){.bytes = MIB(2), .chunks = 8});
	pool = open_as(&shared, OWNER, true);
	reader = open_as(&shared, READER, false);
}

static void end(void)
{
	UNTIL(atomic_load(&reader->handles) == 0);
	close_as(&shared, reader);
	close_as(&shared, pool);
	share_end(&shared);
}

#define DlpackTest(name) TestBetween(chunk_dlpack, name, begin(), end(), .timeout = 60)

#define VIEW(dtype_, ...)                                                                                      \
	(&(const struct gpuwm_chunk_view){                                                                     \
		.dtype = (dtype_),                                                                             \
		.ndim = sizeof((uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t),                                  \
		.shape = (uint64_t[]){__VA_ARGS__},                                                            \
	})

static struct gpuwm_chunk *reading(uint64_t bytes, struct gpuwm_token *ret_token)
{
	*ret_token = offer(pool, bytes, UINT32_C(1) << READER, 0);
	return take(reader, ret_token);
}

DlpackTest(an_export_shows_the_tensor)
{
	struct gpuwm_token token;
	struct gpuwm_chunk *chunk = reading(4096, &token);
	struct gpuwm_chunk_view view = *VIEW(GPUWM_F32, 3, 5);

	view.offset = 256;
	OK(gpuwm_chunk_dlpack(chunk, &view, &tensor));
	cr_assert(tensor->dl_tensor.data == (char *)gpuwm_chunk_address(chunk) + 256);
	cr_assert(tensor->dl_tensor.ndim == 2 && tensor->dl_tensor.shape[0] == 3 &&
		  tensor->dl_tensor.shape[1] == 5);
	cr_assert(tensor->dl_tensor.strides[0] == 5 && tensor->dl_tensor.strides[1] == 1);
	cr_assert(tensor->dl_tensor.dtype.code == kDLFloat && tensor->dl_tensor.dtype.bits == 32);
	OK(gpuwm_chunk_finish(chunk));
	tensor->deleter(tensor);
}

DlpackTest(the_last_export_finishes_the_chunk)
{
	struct gpuwm_token token;
	struct gpuwm_chunk *chunk = reading(4096, &token);

	OK(gpuwm_chunk_dlpack(chunk, VIEW(GPUWM_U8, 4096), &tensor));
	OK(gpuwm_chunk_dlpack(chunk, VIEW(GPUWM_U8, 1), &other));
	OK(gpuwm_chunk_finish(chunk));
	tensor->deleter(tensor);
	FAILS(gpuwm_token_finished(pool, &token, 20), -ETIMEDOUT);
	FAILS(gpuwm_region_close(reader), -EBUSY);
	other->deleter(other);
	OK(gpuwm_token_finished(pool, &token, 5000));
	all_is_free(pool);
}

DlpackTest(the_handle_alone_finishes_it_after_its_exports)
{
	struct gpuwm_token token;
	struct gpuwm_chunk *chunk = reading(4096, &token);

	OK(gpuwm_chunk_dlpack(chunk, VIEW(GPUWM_U8, 4096), &tensor));
	tensor->deleter(tensor);
	FAILS(gpuwm_token_finished(pool, &token, 20), -ETIMEDOUT);
	OK(gpuwm_chunk_finish(chunk));
	OK(gpuwm_token_finished(pool, &token, 0));
}

DlpackTest(readers_get_it_for_reading_and_the_writer_for_writing)
{
	struct gpuwm_chunk *chunk = alloc(pool, 100);
	struct gpuwm_token token;

	OK(gpuwm_chunk_dlpack_versioned(chunk, VIEW(GPUWM_U8, 100), &versioned));
	cr_assert(eq(u64, versioned->flags & DLPACK_FLAG_BITMASK_READ_ONLY, 0));
	versioned->deleter(versioned);
	OK(gpuwm_chunk_offer(chunk, NAMES_READER, &token));
	chunk = take(reader, &token);
	OK(gpuwm_chunk_dlpack_versioned(chunk, VIEW(GPUWM_U8, 100), &versioned));
	cr_assert(ne(u64, versioned->flags & DLPACK_FLAG_BITMASK_READ_ONLY, 0));
	versioned->deleter(versioned);
	OK(gpuwm_chunk_finish(chunk));
}

DlpackTest(an_export_of_what_is_filled_keeps_the_region_and_not_the_chunk)
{
	struct gpuwm_chunk *chunk = alloc(pool, MIB(2));
	struct gpuwm_token token;

	OK(gpuwm_chunk_dlpack(chunk, VIEW(GPUWM_U8, 100), &tensor));
	OK(gpuwm_chunk_offer(chunk, NAMES_READER, &token));
	OK(gpuwm_chunk_finish(take(reader, &token)));
	all_is_free(pool);
	FAILS(gpuwm_region_close(pool), -EBUSY);
	SAYS("1 exports");
	tensor->deleter(tensor);
}

static void is_outside(struct gpuwm_chunk *chunk, struct gpuwm_chunk_view view)
{
	FAILS(gpuwm_chunk_dlpack(chunk, &view, &tensor), -EINVAL);
}

DlpackTest(views_outside_of_the_chunk_are_refused)
{
	struct gpuwm_chunk *chunk = alloc(pool, 1000);
	struct gpuwm_chunk_view view = *VIEW(GPUWM_F32, 250);

	OK(gpuwm_chunk_dlpack(chunk, &view, &tensor));
	tensor->deleter(tensor);
	view.offset = 1;
	is_outside(chunk, view);
	view.offset = UINT64_MAX;
	is_outside(chunk, view);
	is_outside(chunk, *VIEW(GPUWM_F32, 251));
	is_outside(chunk, *VIEW(GPUWM_F32, UINT64_MAX));
	is_outside(chunk, *VIEW(GPUWM_F32, INT64_MAX, INT64_MAX));
	is_outside(chunk, *VIEW(GPUWM_F4, 2001));
	is_outside(chunk, *VIEW(GPUWM_F4, 3));
	is_outside(chunk, *VIEW(0, 1));
	is_outside(chunk, *VIEW(99, 1));
	FAILS(gpuwm_chunk_dlpack(chunk, NULL, &tensor), -EINVAL);
	FAILS(gpuwm_chunk_dlpack(NULL, &view, &tensor), -EINVAL);
	OK(gpuwm_chunk_discard(chunk));
}

DlpackTest(strides_reach_inside_the_chunk_only)
{
	struct gpuwm_chunk *chunk = alloc(pool, 1000);
	struct gpuwm_chunk_view view = *VIEW(GPUWM_U8, 10);
	int64_t stride = 111;

	view.strides = &stride;
	OK(gpuwm_chunk_dlpack(chunk, &view, &tensor));
	tensor->deleter(tensor);
	view.offset = 1;
	is_outside(chunk, view);
	stride = -111;
	view.offset = 999;
	OK(gpuwm_chunk_dlpack(chunk, &view, &tensor));
	tensor->deleter(tensor);
	view.offset = 998;
	is_outside(chunk, view);
	stride = INT64_MAX;
	is_outside(chunk, view);
	stride = INT64_MIN;
	is_outside(chunk, view);
	stride = 0;
	OK(gpuwm_chunk_dlpack(chunk, &view, &tensor));
	tensor->deleter(tensor);
	OK(gpuwm_chunk_discard(chunk));
}

DlpackTest(small_floats_are_shown_as_bytes)
{
	struct gpuwm_chunk *chunk = alloc(pool, 1000);

	cr_assert(eq(int, gpuwm_chunk_dlpack(chunk, VIEW(GPUWM_F4, 10, 200), &tensor), 1));
	cr_assert(tensor->dl_tensor.shape[1] == 100 && tensor->dl_tensor.dtype.bits == 8);
	tensor->deleter(tensor);
	cr_assert(eq(int, gpuwm_chunk_dlpack(chunk, VIEW(GPUWM_Q8_0, 2, 32), &tensor), -ENOTSUP));
	cr_assert(strstr(gpuwm_error()->message, "is Q8_0, which DLPack has no type for") != NULL);
	cr_assert(eq(int, gpuwm_chunk_dlpack(chunk, VIEW(GPUWM_Q8_0, 32, 2), &tensor), -EINVAL));
	OK(gpuwm_chunk_dlpack(chunk, VIEW(GPUWM_F32, 0, 5), &tensor));
	tensor->deleter(tensor);
	OK(gpuwm_chunk_discard(chunk));
}
