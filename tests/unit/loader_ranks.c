/* Folders with files per rank. */
#include "tests/support/loader/opened.h"

#include <errno.h>

TestSuite(ranks, .init = source_setup, .fini = source_teardown);

static int open_folder(void)
{
	char *roots[] = {folder};

	return source_open(folder, &(struct load_choice){0}, &(struct roots){.paths = roots, .count = 1},
			   &source, &error);
}

static void refused(int code, const char *says)
{
	int r = open_folder();

	cr_assert_eq(r, code, "%d: %s", r, error.message);
	cr_assert(strstr(error.message, says), "\"%s\" does not say \"%s\"", error.message, says);
}

/* A part with one tensor of 4 bytes. */
static void write_part(const char *name, const char *tensor)
{
	char header[128];

	snprintf(header, sizeof(header), "{\"%s\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}",
		 tensor);
	write_safetensors(in_folder("%s", name), header, 4);
}

static void write_rank(unsigned rank, unsigned part, const char *tensor)
{
	char name[64];

	snprintf(name, sizeof(name), "model-rank-%u-part-%u.safetensors", rank, part);
	write_part(name, tensor);
}

Test(ranks, are_put_in_their_order)
{
	for (unsigned rank = 0; rank < 11; rank++)
		write_rank(rank, 0, "a");
	write_rank(10, 1, "b");
	cr_assert_eq(open_folder(), 0, "%s", error.message);
	cr_assert_eq(source.world, 11);
	cr_assert_eq(source.tensor_count, 12);
	cr_assert_eq(source.bytes, 48);
	for (unsigned rank = 0; rank < 11; rank++) {
		const struct source_rank *r = &source.ranks[rank];

		cr_assert(r->file == rank && r->tensor == rank, "rank %u", rank);
		cr_assert_eq(r->tensor_count, rank < 10 ? 1 : 2);
		cr_assert_eq(r->file_count, rank < 10 ? 1 : 2);
		cr_assert_eq(r->bytes, rank < 10 ? 4 : 8);
		cr_assert_eq(source.tensors[rank].file, rank);
	}
	cr_assert_str_eq(source.tensors[11].name, "b");
}

Test(ranks, may_be_one)
{
	write_rank(0, 0, "a");
	cr_assert_eq(open_folder(), 0, "%s", error.message);
	cr_assert_eq(source.world, 1);
	cr_assert_eq(source.ranks[0].tensor_count, 1);
}

Test(ranks, are_all_of_a_source_without_them)
{
	write_part("model.safetensors", "a");
	cr_assert_eq(open_folder(), 0, "%s", error.message);
	cr_assert_eq(source.world, 1);
	cr_assert_eq(source.ranks[0].tensor_count, 1);
	cr_assert_eq(source.ranks[0].bytes, 4);
}

Test(ranks, must_all_be_there)
{
	write_rank(0, 0, "a");
	write_rank(2, 0, "a");
	refused(-ENOENT, "no model-rank-1-part-0.safetensors");
}

Test(ranks, must_have_all_their_parts)
{
	write_rank(0, 0, "a");
	write_rank(0, 2, "b");
	write_rank(1, 0, "a");
	refused(-ENOENT, "no model-rank-0-part-1.safetensors");
}

Test(ranks, must_begin_with_part_0)
{
	write_rank(0, 0, "a");
	write_rank(1, 1, "a");
	refused(-ENOENT, "no model-rank-1-part-0.safetensors");
}

Test(ranks, are_not_mixed_with_other_files)
{
	static const char *const others[] = {"model.safetensors",
					     "model.safetensors.index.json",
					     "model-rank-01-part-0.safetensors",
					     "model-rank-1.safetensors",
					     "model-rank-99999999999-part-0.safetensors",
					     "vae.safetensors.index.json"};

	write_rank(0, 0, "a");
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		write_part(others[i], "b");
		refused(-EINVAL, others[i]);
		cr_assert_eq(unlink(in_folder("%s", others[i])), 0);
	}
	cr_assert_eq(open_folder(), 0, "%s", error.message);
}

Test(ranks, have_a_tensor_once)
{
	write_rank(0, 0, "a");
	write_rank(1, 0, "a");
	write_rank(1, 1, "a");
	refused(-EBADMSG, "tensor \"a\" is in two shards");
}

Test(ranks, are_checked_as_any_file_is)
{
	write_rank(0, 0, "a");
	write_bytes(in_folder("model-rank-1-part-0.safetensors"), "x", 1);
	refused(-EBADMSG, "model-rank-1-part-0.safetensors");
}
