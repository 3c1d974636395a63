/* Batches: what the thread pool writes into the folder. */
#include "descriptions_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Files of versions that are written in one batch, before the names: a batch of one file would write the names as often. */
#define BATCH_FILES 16

void description_file_name(const struct version_id *id, char text[DESCRIPTION_FILE_TEXT])
{
	hex128_format(id->bytes, text);
	strcat(text, VERSION_SUFFIX);
}

/* ---- on the thread ---- */

void description_batch_write(struct description_batch *batch)
{
	char name[DESCRIPTION_FILE_TEXT];

	for (size_t i = 0; i < batch->file_count; i++) {
		struct written_file *file = &batch->files[i];

		description_file_name(&file->id, name);
		file->result =
			description_file_write(batch->folder, name,
					       &(struct description_bytes){.kind = DESCRIPTION_VERSION,
									   .body = file->body,
									   .body_bytes = file->body_bytes,
									   .indices = file->indices,
									   .index_count = file->index_count});
	}
	if (batch->names)
		batch->result =
			description_file_write(batch->folder, NAMES_FILE,
					       &(struct description_bytes){.kind = DESCRIPTION_NAMES,
									   .body = batch->names,
									   .body_bytes = batch->names_bytes});
	if (batch->result == 0 && fsync(batch->folder) < 0)
		batch->result = -errno;
	for (size_t i = 0; batch->names && batch->result == 0 && i < batch->removed_count; i++) {
		description_file_name(&batch->removed[i], name);
		unlinkat(batch->folder, name, 0); /* else the next start removes it: the names do not list it */
	}
}

/* ---- on the loop ---- */

void description_batch_free(struct description_batch *batch)
{
	for (size_t i = 0; i < batch->file_count; i++) {
		struct written_file *file = &batch->files[i];

		for (uint32_t k = 0; k < file->index_count; k++)
			close(file->indices[k].fd);
		free(file->indices);
		free(file->body);
	}
	free(batch->files);
	free(batch->names);
	free(batch->removed);
	free(batch);
}

/* What may change in the file of a version: its description, as the file has it. */
static int key_of(const struct version *version, struct digest *ret)
{
	struct message_writer w;
	int r;

	message_writer_init(&w, MESSAGE_BODY_MAX);
	record_put_map(&w, NULL, &description_record, version->description);
	r = message_finish(&w);
	if (r == 0)
		*ret = digest_of(w.buffer.data, w.buffer.size);
	message_writer_clear(&w);
	return r;
}

static int take_indices(struct description_batch *batch, struct written_file *file,
			const struct version *version)
{
	file->indices = calloc(version->replica_count, sizeof(*file->indices));
	if (!file->indices)
		return -ENOMEM;
	for (uint32_t i = 0; i < version->replica_count; i++) {
		int fd = fcntl(version->replicas[i].index.fd, F_DUPFD_CLOEXEC, 0);

		if (fd < 0)
			return -errno;
		batch->fds++;
		file->indices[file->index_count++] =
			(struct description_index){fd, version->replicas[i].index.bytes};
	}
	return 0;
}

/* The bytes move out of the writer. */
static int take_bytes(struct message_writer *w, void **ret, size_t *ret_bytes)
{
	int r = message_finish(w);

	if (r == 0) {
		*ret = malloc(w->buffer.size);
		r = *ret ? 0 : -ENOMEM;
	}
	if (r == 0) {
		memcpy(*ret, w->buffer.data, w->buffer.size);
		*ret_bytes = w->buffer.size;
	}
	message_writer_clear(w);
	return r;
}

static int add_file(struct description_batch *batch, const struct version *version, const struct digest *key)
{
	const struct device_table *devices = &batch->descriptions->ledger->devices;
	struct written_file *file = &batch->files[batch->file_count++];
	struct message_writer w;
	int r;

	file->id = version->id;
	file->key = *key;
	message_writer_init(&w, MESSAGE_BODY_MAX);
	description_put(&w, version, devices);
	r = take_bytes(&w, &file->body, &file->body_bytes);
	return r < 0 ? r : take_indices(batch, file, version);
}

static int add_files(struct descriptions *d, struct description_batch *batch)
{
	struct version *version = NULL;
	int r = 0;

	while (r == 0 && batch->file_count < BATCH_FILES && batch->fds < PARTS_PER_VERSION_MAX &&
	       (version = registry_next_version(d->ledger->registry, NULL, version))) {
		const struct described *file = described_find(d, &version->id);
		struct digest key;

		if (!description_is_due(version))
			continue;
		r = key_of(version, &key);
		if (r == 0 && (!file || !digest_equal(&file->key, &key)))
			r = add_file(batch, version, &key);
	}
	return r;
}

static bool is_on_disk(void *data, const struct version *version)
{
	return description_is_due(version) && described_find(data, &version->id);
}

static int add_removed(struct descriptions *d, struct description_batch *batch)
{
	struct version *version = NULL;

	for (struct described *file = d->files; file; file = file->hh.next)
		file->is_wanted = file->is_left;
	while ((version = registry_next_version(d->ledger->registry, NULL, version))) {
		struct described *file = described_find(d, &version->id);

		if (file)
			file->is_wanted = description_is_due(version);
	}
	batch->removed = calloc(HASH_COUNT(d->files) + 1, sizeof(*batch->removed));
	if (!batch->removed)
		return -ENOMEM;
	for (const struct described *file = d->files; file; file = file->hh.next) {
		if (!file->is_wanted)
			batch->removed[batch->removed_count++] = file->id;
	}
	return 0;
}

/* Of each file on disk the names say its key too. */
static const struct digest *key_on_disk(void *data, const struct version *version)
{
	return &described_find(data, &version->id)->key;
}

static int add_names(struct descriptions *d, struct description_batch *batch)
{
	struct message_writer w;
	int r = add_removed(d, batch);

	if (r < 0)
		return r;
	message_writer_init(&w, MESSAGE_BODY_MAX);
	description_put_names(&w, &(struct described_registry){d->ledger->registry, &d->ledger->devices,
							       is_on_disk, key_on_disk, d, d->left});
	r = take_bytes(&w, &batch->names, &batch->names_bytes);
	if (r == 0 && !d->names && !d->files) /* there is nothing to say yet */
		return -EALREADY;
	if (r == 0 && batch->removed_count == 0 && d->names && d->names_bytes == batch->names_bytes &&
	    memcmp(d->names, batch->names, batch->names_bytes) == 0)
		return -EALREADY;
	return r;
}

struct description_batch *description_batch_next(struct descriptions *d, struct error *error)
{
	struct description_batch *batch = calloc(1, sizeof(*batch));
	int r = batch ? 0 : -ENOMEM;

	error->code = 0;
	if (batch) {
		batch->descriptions = d;
		batch->folder = d->folder;
		batch->files = calloc(BATCH_FILES, sizeof(*batch->files));
		r = batch->files ? 0 : -ENOMEM;
		if (r == 0 && !d->names_only)
			r = add_files(d, batch);
	}
	if (r == 0 && batch->file_count == 0)
		r = add_names(d, batch);
	if (r == 0)
		return batch;
	if (batch)
		description_batch_free(batch);
	if (r != -EALREADY)
		error_set(error, r, NULL, "versions could not be described in %s: %s", d->path, strerror(-r));
	return NULL;
}
