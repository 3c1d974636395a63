#include "save.h"

#include "../../../proto/index/strided.h"
#include "../mapping/attach.h"

#include "../../../base/grow.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What is read from the version's memory at once: a multiple of every element, and of a word of the digest. A larger one makes copies
 * from a GPU no faster. */
#define CHUNK_BYTES MIB(8)
/* The disk begins to write as soon as it has this much, and is at most two such pieces behind: a sync at the end of a file would take
 * minutes without a sign of life. */
#define SAVE_SYNC_BYTES MIB(64)

struct writer {
	struct save *save;
	const struct save_file *file;
	int fd;
	char *chunk; /* CHUNK_BYTES */
	uint64_t written, piece,
		before; /* bytes of the file; where the piece begins that is being written, and the one before it */
};

/* What reached the disk is told here, and fsync would not tell it again. */
static int writer_sync(struct writer *w)
{
	int r = 0;

	if (w->written - w->piece < SAVE_SYNC_BYTES)
		return 0;
	if (w->piece > w->before)
		r = sync_file_range(w->fd, (off64_t)w->before, (off64_t)(w->piece - w->before),
				    SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
					    SYNC_FILE_RANGE_WAIT_AFTER);
	if (r == 0)
		r = sync_file_range(w->fd, (off64_t)w->piece, (off64_t)(w->written - w->piece),
				    SYNC_FILE_RANGE_WRITE);
	w->before = w->piece;
	w->piece = w->written;
	/* Not every file system knows the call. */
	if (r == 0 || (errno != EIO && errno != ENOSPC && errno != EDQUOT))
		return 0;
	return save_failed(w->save, -errno, "writing", w->file->name);
}

static int writer_put(struct writer *w, const void *data, size_t bytes)
{
	int r = file_write_all(w->fd, data, bytes);

	w->written += bytes;
	return r < 0 ? save_failed(w->save, r, "writing", w->file->name) : writer_sync(w);
}

static int writer_advance(struct writer *w, uint64_t bytes)
{
	const struct gpuwm_save_options *options = &w->save->options;

	if (!options->progress || options->progress(bytes, w->save->bytes, options->user_data) == 0)
		return 0;
	return error_set(w->save->error, -ECANCELED, NULL, "saving %s@%s was cancelled",
			 w->file->mapping->version.model, w->file->mapping->version.tag);
}

/* A file must not have what the version never had. */
static int writer_compare_digest(struct writer *w, const struct gpuwm_tensor *tensor,
				 const struct digest_sum *sum)
{
	struct digest digest = digest_final(sum, tensor->bytes);

	if (memcmp(digest.bytes, tensor->digest, sizeof(tensor->digest)) == 0)
		return 0;
	return error_set(w->save->error, -EBADMSG, "gpuwmctl verify reads all of it again, for everybody",
			 "tensor %.512s of %s@%s: what was read does not have the digest of the version",
			 tensor->name, w->file->mapping->version.model, w->file->mapping->version.tag);
}

/* ---- tensors in the order of rows -------------------------------------------- */

static int read_memory(struct writer *w, const struct gpuwm_tensor *tensor, uint64_t offset, void *to,
		       uint64_t bytes)
{
	struct mapped_part *part = w->file->mapping->part;
	const struct memory_ops *ops = part->device.ops;
	int r = ops->enter(&part->device, w->save->error);

	if (r < 0)
		return r;
	r = ops->read(&part->device, to, (const char *)tensor->data + offset, bytes, w->save->error);
	ops->leave(&part->device);
	return r;
}

static int write_plain(struct writer *w, const struct gpuwm_tensor *tensor)
{
	struct digest_sum sum = {0};
	int r = 0;

	for (uint64_t at = 0, bytes; r == 0 && at < tensor->bytes; at += bytes) {
		bytes = tensor->bytes - at < CHUNK_BYTES ? tensor->bytes - at : CHUNK_BYTES;
		r = read_memory(w, tensor, at, w->chunk, bytes);
		if (r < 0)
			return r;
		digest_update(&sum, at, w->chunk, bytes);
		r = writer_put(w, w->chunk, bytes);
		if (r == 0)
			r = writer_advance(w, bytes);
	}
	return r < 0 ? r : writer_compare_digest(w, tensor, &sum);
}

/* ---- tensors in another order ------------------------------------------------ */

static int write_rows(struct writer *w, const struct gpuwm_tensor *tensor, const char *memory)
{
	struct strided strided;
	int r = 0;

	strided_to_rows(tensor->dtype, tensor->ndim, tensor->shape, tensor->strides, &strided);
	for (uint64_t at = 0, bytes; r == 0 && at < tensor->bytes; at += bytes) {
		bytes = tensor->bytes - at < CHUNK_BYTES ? tensor->bytes - at : CHUNK_BYTES;
		strided_gather(&strided, memory, at / strided.element, bytes / strided.element, w->chunk);
		r = writer_put(w, w->chunk, bytes);
		if (r == 0)
			r = writer_advance(w, bytes);
	}
	return r;
}

/* Its bytes come from everywhere in it, so all of them are read first. */
static int write_strided(struct writer *w, const struct gpuwm_tensor *tensor)
{
	struct digest_sum sum = {0};
	char *memory = malloc(tensor->bytes);
	int r;

	if (!memory)
		return error_set(w->save->error, -ENOMEM, NULL,
				 "no room for the %llu bytes of tensor %.512s, whose strides are not in order",
				 (unsigned long long)tensor->bytes, tensor->name);
	r = read_memory(w, tensor, 0, memory, tensor->bytes);
	if (r == 0) {
		digest_update(&sum, 0, memory, tensor->bytes);
		r = writer_compare_digest(w, tensor, &sum);
	}
	if (r == 0)
		r = write_rows(w, tensor, memory);
	free(memory);
	return r;
}

/* ---- files ------------------------------------------------------------------- */

/* Ends a file: what could not be written is not synced. */
static int file_finish(const struct save *save, const char *name, int fd, int r)
{
	if (r == 0)
		return save_folder_finish(save, name, fd);
	close(fd);
	return r;
}

static int write_file(struct writer *w)
{
	struct save *save = w->save;
	char *header = NULL;
	size_t bytes = 0;
	int r = save_header(save, w->file, &header, &bytes);

	if (r == 0)
		r = save_folder_create(save, w->file->name, bytes + w->file->bytes, &w->fd);
	if (r < 0) {
		free(header);
		return r;
	}
	r = writer_put(w, header, bytes);
	free(header);
	for (size_t i = 0; r == 0 && i < w->file->count; i++) {
		const struct gpuwm_tensor *tensor = &w->file->tensors[i].tensor;

		if (strided_is_plain(tensor->dtype, tensor->ndim, tensor->shape, tensor->strides))
			r = write_plain(w, tensor);
		else
			r = write_strided(w, tensor);
	}
	return file_finish(save, w->file->name, w->fd, r);
}

/* On a GPU the context stays until the mapping ends. */
static int write_files(struct save *save, char *chunk)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < save->file_count; i++) {
		struct writer w = {.save = save, .file = &save->files[i], .chunk = chunk};

		r = mapped_part_hold(w.file->mapping->part, save->error);
		if (r == 0)
			r = write_file(&w);
	}
	return r;
}

static int write_small(struct save *save, const char *name, const void *data, size_t bytes)
{
	int fd, r = save_folder_create(save, name, bytes, &fd), written;

	if (r < 0)
		return r;
	written = file_write_all(fd, data, bytes);
	if (written < 0)
		written = save_failed(save, written, "writing", name);
	return file_finish(save, name, fd, written);
}

/* The version's own small files. Of several ranks with one name the first has it. */
static int write_extras(struct save *save, const struct gpuwm_mapping *mapping, size_t *written)
{
	const struct index_view *view = save_view(mapping);
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < view->header->file_count; i++) {
		const struct index_file *file = &view->files[i];
		const char *name = view->heap + file->name;

		if (*written < save->name_count && strcmp(save->names[*written].name, name) == 0) {
			r = write_small(save, name, view->heap + file->content, file->content_bytes);
			++*written;
		}
	}
	return r;
}

static int write_index(struct save *save)
{
	char *text = NULL;
	size_t bytes = 0;
	int r;

	if (save->world > 1 || save->file_count == 1)
		return 0;
	r = save_index(save, &text, &bytes);
	if (r == 0)
		r = write_small(save, SAVE_INDEX_NAME, text, bytes);
	free(text);
	return r;
}

int save_write(struct save *save)
{
	char *chunk = malloc(CHUNK_BYTES);
	size_t written = save->file_count;
	int r = chunk ? write_files(save, chunk) : error_set(save->error, -ENOMEM, NULL, "out of memory");

	free(chunk);
	for (size_t i = 0; r == 0 && i < save->world; i++)
		r = write_extras(save, save->mappings[i], &written);
	return r < 0 ? r : write_index(save);
}
