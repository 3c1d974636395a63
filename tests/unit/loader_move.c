/* Moves between memory and files, as gpuwmd gives them: on the host, and on tests/fakecuda where GPUWM_TEST_BACKEND says so. */
#include "tests/support/loader/moved.h"

TestSuite(move, .init = move_begin, .fini = move_end, .timeout = 120);

/* ---- files ---------------------------------------------------------------- */

/* Changes one byte of the part's file, so many before its end. */
static void change_byte(long before_end)
{
	FILE *file = fopen(in_folder("model-rank-1-part-0.safetensors"), "r+e");
	int byte;

	cr_assert(file && fseek(file, -before_end, SEEK_END) == 0 && (byte = fgetc(file)) != EOF &&
		  fseek(file, -before_end, SEEK_END) == 0 && fputc(byte ^ 1, file) != EOF && fclose(file) == 0);
}

Test(move, files_come_to_the_places_of_the_index)
{
	move_write_ranks(NULL);
	move_send_files("files", "device");
	expect_moved(&moved);
	cr_expect_eq(moved.segment_count, MOVED_SEGMENTS);
	expect_whole(moved_device(), &part, &moved);
	move_done();
}

Test(move, files_come_to_host_memory)
{
	move_write_ranks(NULL);
	move_send_files("files", "host");
	expect_moved(&moved);
	expect_whole(DEVICE_HOST, &part, &moved);
	move_done();
}

Test(move, files_are_proved)
{
	move_write_ranks(NULL);
	move_send_files("device", "files");
	expect_moved(&moved);
	cr_expect_eq(moved.segment_count, 0);
	move_done();
}

static void expect_refused(const char *to, const char *code, const char *says)
{
	move_send_files(to ? "files" : "device", to ? to : "files");
	move_failed(code, says);
}

/* The last bytes are those of the last tensor, which has strides. */
Test(move, a_strided_tensor_that_changed_is_named)
{
	move_write_ranks(NULL);
	change_byte(1);
	expect_refused(NULL, "EBADMSG", "tensor \"twisted\" in ");
}

Test(move, a_strided_tensor_that_changed_does_not_come_back)
{
	move_write_ranks(NULL);
	change_byte(1);
	expect_refused("device", "EBADMSG", "tensor \"twisted\" in ");
}

Test(move, a_tensor_that_changed_is_named_with_its_file)
{
	move_write_ranks(NULL);
	change_byte(1000);
	expect_refused(NULL, "EBADMSG", "tensor \"big\" in ");
}

Test(move, a_tensor_that_changed_does_not_come_back)
{
	move_write_ranks(NULL);
	change_byte(1000);
	expect_refused("device", "EBADMSG", "model-rank-1-part-0.safetensors has digest ");
}

Test(move, a_tensor_that_is_missing_is_named)
{
	move_write_ranks("tied");
	expect_refused(NULL, "EBADMSG", " has no tensor \"tied\", which m@v1 has");
}

Test(move, a_tensor_of_another_shape_is_named)
{
	move_write_ranks(NULL);
	write_safetensors(in_folder("model-rank-1-part-0.safetensors"),
			  "{\"dense\":{\"dtype\":\"F32\",\"shape\":[3,2],\"data_offsets\":[0,24]}}", 24);
	expect_refused(NULL, "EBADMSG", "tensor \"dense\" in ");
}

Test(move, a_tensor_that_the_version_lacks_is_left_alone)
{
	move_write_ranks(NULL);
	write_safetensors(in_folder("model-rank-1-part-1.safetensors"),
			  "{\"more\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]}}", 3);
	move_send_files("device", "files");
	expect_moved(&moved);
	move_done();
}

Test(move, a_file_that_is_missing_is_named)
{
	expect_refused(NULL, "ENOENT", " has no safetensors files");
}

Test(move, a_rank_that_is_missing_is_named)
{
	move_write_ranks(NULL);
	unlink(in_folder("model-rank-0-part-0.safetensors"));
	expect_refused(NULL, "ENOENT", "but no model-rank-0-part-0.safetensors");
}

Test(move, a_folder_that_is_missing_is_named)
{
	moved_index(&part);
	send_move("files", "device", in_folder("gone"), &part);
	move_failed("ENOENT", "gone");
}

Test(move, a_file_that_is_shorter_is_named)
{
	move_write_ranks(NULL);
	cr_assert_eq(truncate(in_folder("model-rank-1-part-0.safetensors"), 4000000), 0);
	expect_refused("device", "EBADMSG", "model-rank-1-part-0.safetensors");
}

Test(move, files_of_other_ranks_are_refused)
{
	moved_file(in_folder("model.safetensors"), NULL);
	expect_refused(NULL, "EBADMSG", "has files for 1 rank, but m@v1 has 3 ranks");
}

Test(move, a_host_without_room_is_refused_before_anything_is_made)
{
	moved_more = GIB(1 << 20);
	move_write_ranks(NULL);
	move_send_files("files", "host");
	move_failed("ENOSPC", "host memory has no room for 1.0 PiB of m@v1: ");
}

Test(move, a_source_that_no_root_has_is_refused)
{
	moved_index(&part);
	send_move("files", "device", "/", &part);
	move_failed("EACCES", "");
}

/* A loader of a service uses its own roots, and this one has none. */
Test(move, roots_of_a_service_count_and_not_those_of_the_job)
{
	move_write_ranks(NULL);
	write_bytes(in_folder("gpuwmd.conf"), "", 0);
	roots = (struct roots_service){.own = true, .file = in_folder("gpuwmd.conf")};
	expect_refused(NULL, "EACCES", "");
}

/* ---- what the job says ----------------------------------------------------- */

Test(move, to_the_same_tier_is_refused)
{
	expect_refused("files", "EINVAL", "lies on that tier already");
}

Test(move, a_tier_that_is_none_is_refused)
{
	expect_refused("disk", "EINVAL", "a move from \"files\" to \"disk\"");
}

Test(move, files_need_a_source)
{
	moved_index(&part);
	send_move("files", "device", NULL, &part);
	move_failed("EINVAL", "needs files or nodes");
}

Test(move, host_memory_is_no_tier_below_the_host)
{
	moved_index(&part);
	send_move("device", "host", NULL, &part);
	move_failed(on_fakecuda() ? "EIO" : "EINVAL",
		    on_fakecuda() ? "the index names 2 segments, 0 came with the job" : "that is its device");
}

Test(move, an_index_that_is_none_is_no_damage)
{
	move_write_ranks(NULL);
	moved_index(&part);
	part.index.bytes -= 8;
	send_move("files", "device", folder, &part);
	move_failed("EIO", "index");
}

Test(move, an_index_of_another_rank_is_no_damage)
{
	moved_rank = 0;
	expect_refused(NULL, "EIO", "the index is of rank 1 of 3, the job of rank 0 of 3");
}

/* ---- a source that is cut ---------------------------------------------------- */

static void send_cut(const char *plan, uint64_t ranks)
{
	moved_cut = plan;
	moved_ranks = ranks;
	moved_file(in_folder("model.safetensors"), NULL);
	move_send_files("files", "device");
}

Test(move, a_cut_into_other_ranks_is_refused)
{
	send_cut("* copy", 2);
	move_failed("EINVAL", "the job is of 3 ranks, and its source is cut into 2");
}

Test(move, a_plan_that_is_none_is_refused)
{
	send_cut("* fold", 3);
	move_failed("EINVAL", "line 1");
}

/* Nobody cuts a checkpoint into tensors with strides. */
Test(move, a_cut_that_gives_other_tensors_is_refused)
{
	send_cut("* copy", 3);
	move_failed("EBADMSG", " gives rank 1 7 tensors by the plan, of which m@v1 has 5");
}

Test(move, ends_when_it_is_cancelled)
{
	move_write_ranks(NULL);
	move_send_files("files", "device");
	move_cancel_when("mapping");
	move_failed("ECANCELED", "cancelled while ");
}
