#include "sums.h"

#include <errno.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

bool sum_equal(const struct sum *a, const struct sum *b)
{
	return memcmp(a->bytes, b->bytes, SUM_BYTES) == 0;
}

void sum_format(const struct sum *sum, char ret[SUM_TEXT])
{
	static const char digits[] = "0123456789abcdef";

	for (size_t i = 0; i < SUM_BYTES; i++) {
		ret[2 * i] = digits[sum->bytes[i] >> 4];
		ret[2 * i + 1] = digits[sum->bytes[i] & 15];
	}
	ret[SUM_TEXT - 1] = '\0';
}

static int digit_of(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

int sum_parse(const char *text, struct sum *ret)
{
	struct sum sum;

	if (strlen(text) != SUM_TEXT - 1)
		return -EINVAL;
	for (size_t i = 0; i < SUM_BYTES; i++) {
		int high = digit_of(text[2 * i]), low = digit_of(text[2 * i + 1]);

		if (high < 0 || low < 0)
			return -EINVAL;
		sum.bytes[i] = (uint8_t)(high << 4 | low);
	}
	*ret = sum;
	return 0;
}

uint64_t sums_piece_count(uint64_t segment_bytes)
{
	return segment_bytes / SUMS_PIECE_BYTES + (segment_bytes % SUMS_PIECE_BYTES > 0);
}

size_t sums_piece_bytes(uint64_t segment_bytes, uint64_t position)
{
	uint64_t left = segment_bytes - position * SUMS_PIECE_BYTES;

	return left < SUMS_PIECE_BYTES ? left : SUMS_PIECE_BYTES;
}

/* SHA-256 of all that is added. The context is reused for every sum of a thread. */
static int sha256_begin(EVP_MD_CTX *context)
{
	return EVP_DigestInit_ex(context, EVP_sha256(), NULL) == 1 ? 0 : -ENOMEM;
}

static int sha256_add(EVP_MD_CTX *context, const void *data, size_t bytes)
{
	return EVP_DigestUpdate(context, data, bytes) == 1 ? 0 : -ENOMEM;
}

static int sha256_end(EVP_MD_CTX *context, struct sum *ret)
{
	return EVP_DigestFinal_ex(context, ret->bytes, NULL) == 1 ? 0 : -ENOMEM;
}

static int sum_of(EVP_MD_CTX *context, const void *data, size_t bytes, struct sum *ret)
{
	int r = sha256_begin(context);

	if (r == 0)
		r = sha256_add(context, data, bytes);
	return r < 0 ? r : sha256_end(context, ret);
}

static int piece_of(EVP_MD_CTX *context, const uint8_t *data, size_t bytes, struct sum *ret)
{
	struct sum leaves[SUMS_PIECE_LEAVES];
	size_t count = 0;
	int r = 0;

	for (size_t at = 0; r == 0 && at < bytes; at += SUMS_LEAF_BYTES) {
		size_t left = bytes - at;

		r = sum_of(context, data + at, left < SUMS_LEAF_BYTES ? left : SUMS_LEAF_BYTES,
			   &leaves[count++]);
	}
	return r < 0 ? r : sum_of(context, leaves, count * sizeof(*leaves), ret);
}

int sums_plain(const void *data, size_t bytes, struct sum *ret)
{
	EVP_MD_CTX *context = EVP_MD_CTX_new();
	int r = context ? sum_of(context, data, bytes, ret) : -ENOMEM;

	EVP_MD_CTX_free(context);
	return r;
}

int sums_piece(const void *data, size_t bytes, struct sum *ret)
{
	EVP_MD_CTX *context = EVP_MD_CTX_new();
	int r = context ? piece_of(context, data, bytes, ret) : -ENOMEM;

	EVP_MD_CTX_free(context);
	return r;
}

int sums_segment(const struct sum *pieces, uint64_t count, struct sum *ret)
{
	return sums_plain(pieces, count * sizeof(*pieces), ret);
}

int sums_part(const struct sum *index, const struct sum *segments, uint32_t count, struct sum *ret)
{
	EVP_MD_CTX *context = EVP_MD_CTX_new();
	int r = context ? sha256_begin(context) : -ENOMEM;

	if (r == 0)
		r = sha256_add(context, index, sizeof(*index));
	if (r == 0)
		r = sha256_add(context, segments, count * sizeof(*segments));
	if (r == 0)
		r = sha256_end(context, ret);
	EVP_MD_CTX_free(context);
	return r;
}

int sums_fingerprint(const struct sum *parts, uint32_t world, struct sum *ret)
{
	return sums_plain(parts, world * sizeof(*parts), ret);
}

void *sums_buffer_new(const struct memory_device *device)
{
	void *buffer = device->ops->cpu_addresses ? NULL : aligned_alloc(4096, SUMS_PIECE_BYTES);
	struct error unused;

	/* If the driver refuses, copies only take longer; unpin does nothing then. */
	if (buffer && device->ops->pin)
		device->ops->pin(buffer, SUMS_PIECE_BYTES, &unused);
	return buffer;
}

void sums_buffer_free(const struct memory_device *device, void *buffer)
{
	if (buffer && device->ops->unpin)
		device->ops->unpin(buffer);
	free(buffer);
}

/* ---- a whole segment, by several threads ---------------------------------- */

struct summing {
	const struct memory_device *device;
	const uint8_t *address;
	uint64_t bytes, count;
	struct sum *sums;
	pthread_mutex_t lock; /* guards what follows */
	uint64_t next; /* the first piece that nobody has taken */
	uint64_t done; /* bytes that the caller was not yet told of */
	bool stopped;
	struct error error; /* the first */
};

/* Takes the next piece. Returns false at the end. */
static bool take_piece(struct summing *summing, size_t summed, uint64_t *ret_position)
{
	bool any;

	pthread_mutex_lock(&summing->lock);
	summing->done += summed;
	any = !summing->stopped && !summing->error.code && summing->next < summing->count;
	if (any)
		*ret_position = summing->next++;
	pthread_mutex_unlock(&summing->lock);
	return any;
}

static void fail_summing(struct summing *summing, int r, const struct error *error)
{
	pthread_mutex_lock(&summing->lock);
	if (!summing->error.code) {
		summing->error = *error;
		if (!error->code)
			error_set(&summing->error, r, NULL, "no memory for the sums of a version's pieces");
	}
	pthread_mutex_unlock(&summing->lock);
}

/* Sums pieces until none is left. With tell, tells progress after each one. */
static int sum_pieces(struct summing *summing, memory_progress_fn *tell, void *user_data)
{
	const struct memory_ops *ops = summing->device->ops;
	EVP_MD_CTX *context = EVP_MD_CTX_new();
	void *buffer = sums_buffer_new(summing->device);
	struct error error = {0};
	int r = context && (buffer || ops->cpu_addresses) ? 0 : -ENOMEM;
	size_t summed = 0;
	uint64_t position, done;

	while (r == 0 && take_piece(summing, summed, &position)) {
		const uint8_t *data = summing->address + position * SUMS_PIECE_BYTES;

		summed = sums_piece_bytes(summing->bytes, position);
		if (buffer) {
			r = ops->read(summing->device, buffer, data, summed, &error);
			data = buffer;
		}
		if (r == 0)
			r = piece_of(context, data, summed, &summing->sums[position]);
		if (r < 0 || !tell)
			continue;
		pthread_mutex_lock(&summing->lock);
		done = summing->done;
		summing->done = 0;
		pthread_mutex_unlock(&summing->lock);
		if (tell(done, user_data) != 0)
			r = error_set(&error, -ECANCELED, NULL, "the sums were not wanted any more");
	}
	if (r < 0)
		fail_summing(summing, r, &error);
	sums_buffer_free(summing->device, buffer);
	EVP_MD_CTX_free(context);
	return r;
}

static void *sum_on_thread(void *user_data)
{
	struct summing *summing = user_data;
	struct error error = {0};
	int r = summing->device->ops->enter(summing->device, &error);

	if (r < 0) {
		fail_summing(summing, r, &error);
		return NULL;
	}
	sum_pieces(summing, NULL, NULL);
	summing->device->ops->leave(summing->device);
	return NULL;
}

static int sum_by_threads(const struct memory_device *device, const struct memory_span *segment,
			  const struct sums_options *options, struct sum *ret_pieces, struct error *error)
{
	struct summing summing = {
		.device = device,
		.address = segment->address,
		.bytes = segment->bytes,
		.count = sums_piece_count(segment->bytes),
		.sums = ret_pieces,
	};
	pthread_t others[SUMS_THREADS_MAX] = {0};
	unsigned wanted = options->threads < SUMS_THREADS_MAX ? options->threads : SUMS_THREADS_MAX, made = 0;

	if (summing.count < wanted)
		wanted = (unsigned)summing.count;
	pthread_mutex_init(&summing.lock, NULL);
	/* With fewer threads it only takes longer. */
	while (made + 1 < wanted && pthread_create(&others[made], NULL, sum_on_thread, &summing) == 0)
		made++;
	sum_pieces(&summing, options->progress, options->user_data);
	while (made > 0)
		pthread_join(others[--made], NULL);
	pthread_mutex_destroy(&summing.lock);
	if (summing.error.code)
		*error = summing.error;
	else if (options->progress && summing.done > 0 &&
		 options->progress(summing.done, options->user_data) != 0)
		return error_set(error, -ECANCELED, NULL, "the sums were not wanted any more");
	return summing.error.code;
}

/* ---- a whole segment, by the device ----------------------------------------- */

static int sum_by_device(struct sums_device *sums, const struct memory_span *segment,
			 const struct sums_options *options, struct sum *ret_pieces, struct error *error)
{
	struct memory_span pieces[SUMS_DEVICE_PIECES];
	uint64_t count = sums_piece_count(segment->bytes), done = 0, end;
	int r = 0;

	for (uint64_t first = 0; r == 0 && first < count; first += SUMS_DEVICE_PIECES) {
		uint64_t left = count - first;
		size_t batch = left < SUMS_DEVICE_PIECES ? left : SUMS_DEVICE_PIECES;

		for (size_t i = 0; i < batch; i++)
			pieces[i] = (struct memory_span){(const uint8_t *)segment->address +
								 (first + i) * SUMS_PIECE_BYTES,
							 sums_piece_bytes(segment->bytes, first + i)};
		r = sums_device_run(sums, pieces, batch, ret_pieces + first, error);
		end = left < SUMS_DEVICE_PIECES ? segment->bytes
						: (first + SUMS_DEVICE_PIECES) * SUMS_PIECE_BYTES;
		if (r == 0 && options->progress && options->progress(end - done, options->user_data) != 0)
			r = error_set(error, -ECANCELED, NULL, "the sums were not wanted any more");
		done = end;
	}
	return r;
}

int sums_memory(const struct memory_device *device, const struct memory_span *segment,
		const struct sums_options *options, struct sum *ret_pieces, struct error *error)
{
	struct sums_device *sums = NULL;
	int r = sums_device_open(device, &sums, error);

	if (r == 1)
		return sum_by_threads(device, segment, options, ret_pieces, error);
	if (r == 0)
		r = sum_by_device(sums, segment, options, ret_pieces, error);
	sums_device_close(sums);
	return r;
}
