/* Tensors whose bytes lie in memory in another order than in the file: a file has rows, and the last dimension is the fastest there.
 * Each thread takes a whole tensor, since its bytes come from everywhere in the file's. */
#include "move_internal.h"

#include "../../proto/index/strided.h"

#include <errno.h>
#include <stdlib.h>

/* What is put in order at once: a multiple of every element, and of a word of the digest. The CPU's cache holds it. */
#define SLAB_BYTES KIB(512)
/* Each thread holds one tensor. */
#define STRIDED_THREADS_MAX 8

struct strided_work {
	const struct move_files *files;
	bool writes;
};

struct strided_tensor {
	const struct move_files *files;
	const struct source_tensor *tensor;
	uint32_t position;
	char *rows; /* all bytes of the file's */
	char *slab; /* SLAB_BYTES, in the order of memory */
};

static int write_slab(const struct strided_tensor *t, uint64_t offset, size_t bytes, struct error *error)
{
	const struct memory_device *device = &t->files->move->device;
	char *to = (char *)files_place(t->files->move, t->position) + offset;
	int r = device->ops->enter(device, error);

	if (r < 0)
		return r;
	r = device->ops->write(device, to, t->slab, bytes, error);
	device->ops->leave(device);
	return r;
}

static int put_in_order(const struct strided_tensor *t, bool writes, struct team *team, struct error *error)
{
	const struct index_view *view = &t->files->move->index.view;
	const struct index_tensor *of = &view->tensors[t->position];
	struct digest_sum sum = {0};
	struct digest digest;
	struct strided strided;
	int r = 0;

	strided_to_memory(of->dtype, of->ndim, index_shape(view, of), index_strides(view, of), &strided);
	for (uint64_t at = 0, bytes; r == 0 && at < of->bytes; at += bytes) {
		bytes = of->bytes - at < SLAB_BYTES ? of->bytes - at : SLAB_BYTES;
		strided_gather(&strided, t->rows, at / strided.element, bytes / strided.element, t->slab);
		digest_update(&sum, at, t->slab, bytes);
		if (writes)
			r = write_slab(t, at, bytes, error);
		if (!team_add(team, bytes))
			return r;
	}
	digest = digest_final(&sum, of->bytes);
	return r < 0 ? r : files_compare(t->files, t->tensor, t->position, &digest, error);
}

/* The function of the team: one tensor. */
static int strided_carry(struct team *team, uint64_t item, unsigned member, void *data, struct error *error)
{
	const struct strided_work *work = data;
	const struct files_list *list = &work->files->strided;
	struct strided_tensor t = {
		.files = work->files,
		.tensor = &list->tensors[item],
		.position = list->index[item],
		.rows = malloc(list->tensors[item].bytes),
		.slab = malloc(SLAB_BYTES),
	};
	int r;

	(void)member;
	if (!t.rows || !t.slab)
		r = error_set(error, -ENOMEM, NULL, "no room for tensor \"%s\" of %llu bytes", t.tensor->name,
			      (unsigned long long)t.tensor->bytes);
	else
		r = source_file_read_at(&t.files->source.files[t.tensor->file], t.rows, t.tensor->bytes,
					t.tensor->offset, error);
	if (r == 0)
		r = put_in_order(&t, work->writes, team, error);
	free(t.rows);
	free(t.slab);
	return r;
}

int files_strided(struct move_files *files, bool writes)
{
	struct strided_work data = {.files = files, .writes = writes};
	const struct team_work work = {
		.run = strided_carry,
		.data = &data,
		.count = files->strided.count,
		.members = copy_readers(1) < STRIDED_THREADS_MAX ? copy_readers(1) : STRIDED_THREADS_MAX,
		.progress = work_advance,
		.user_data = files->move->work,
	};
	int r;

	if (files->strided.count == 0)
		return 0;
	r = team_run(&work, files->move->error);
	for (size_t i = 0; r == 0 && i < files->source.file_count; i++)
		r = source_file_unchanged(&files->source.files[i], files->move->error);
	return r;
}
