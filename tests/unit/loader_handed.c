/* Loads whose files come as descriptors. */
#include "tests/support/loader/daemon.h"

#include "proto/wire/messages.h"

#include <fcntl.h>

static void setup(void)
{
	start();
	write_model();
	answer_empty();
	dry_run = true;
}

static void teardown(void)
{
	finish();
}

TestSuite(handed, .init = setup, .fini = teardown, .timeout = 120);

/* Sends a load without roots, and returns the socket for its files. */
static int send_load(void)
{
	const uint64_t first = 0;
	const char *devices[] = {"host"};
	struct message_writer w;
	int pair[2];

	cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	message_writer_init(&w, PACKET_BYTES_MAX);
	message_notification(&w, NOTIFY_JOB);
	record_put(&w, &job_head_record, &(struct job_head){1, "load"});
	record_put(&w, form_job_load.params,
		   &(struct job_load_params){.wish.source = "hf:acme/tiny@0123abc",
					     .model = "m",
					     .tag = "v1",
					     .wish.devices = {devices, 1},
					     .wish.dry_run = true,
					     .files = &first});
	say(gpuwmd, &w, &pair[1], 1);
	close(pair[1]);
	return pair[0];
}

/* Passes these descriptors, which it closes, under these names. */
static void pass(int sock, const char *const *names, const int *fds, uint32_t count, size_t fd_count)
{
	struct message_writer w;

	message_writer_init(&w, PACKET_BYTES_MAX);
	message_notification(&w, form_hand_files.name);
	record_put(&w, form_hand_files.params, &(struct hand_files_params){.names = {names, count}});
	say(sock, &w, fds, fd_count);
	for (size_t i = 0; i < fd_count; i++)
		close(fds[i]);
	close(sock);
}

/* Passes one descriptor. */
static void pass_one(const char *name, int fd)
{
	cr_assert_geq(fd, 0);
	pass(send_load(), &name, &fd, 1, 1);
}

static int open_model(void)
{
	return open(in_folder("model.safetensors"), O_RDONLY | O_CLOEXEC);
}

Test(handed, a_load_takes_the_files_that_it_is_passed_and_needs_no_root)
{
	const char *names[] = {"config.json", "model.safetensors"};
	int fds[] = {open(in_folder("config.json"), O_RDONLY | O_CLOEXEC), open_model()};

	pass(send_load(), names, fds, 2, 2);
	expect_done("", "");
}

Test(handed, a_file_that_was_not_passed_is_not_opened)
{
	const char *index = "{\"weight_map\":{\"a\":\"model.safetensors\"}}";

	write_bytes(in_folder("model.safetensors.index.json"), index, strlen(index));
	pass_one("model.safetensors.index.json",
		 open(in_folder("model.safetensors.index.json"), O_RDONLY | O_CLOEXEC));
	expect_done("ENOENT", "names the shard hf:acme/tiny@0123abc/model.safetensors, which is missing");
}

Test(handed, a_descriptor_that_was_not_opened_for_reading_proves_no_right_to_read)
{
	pass_one("model.safetensors", open(in_folder("model.safetensors"), O_WRONLY | O_CLOEXEC));
	expect_done("EACCES", "was passed model.safetensors, but not open for reading");
}

Test(handed, a_descriptor_that_only_names_a_file_proves_no_right_to_read)
{
	pass_one("model.safetensors", open(in_folder("model.safetensors"), O_PATH | O_CLOEXEC));
	expect_done("EACCES", "was passed model.safetensors, but not open for reading");
}

Test(handed, a_folder_is_refused)
{
	pass_one("model.safetensors", open(folder, O_RDONLY | O_CLOEXEC));
	expect_done("EINVAL", "was passed model.safetensors, which is no regular file");
}

Test(handed, a_fifo_is_refused_and_nobody_waits_for_its_writer)
{
	mkfifo(in_folder("fifo"), 0600);
	pass_one("model.safetensors", open(in_folder("fifo"), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
	expect_done("EINVAL", "was passed model.safetensors, which is no regular file");
}

Test(handed, a_device_is_refused)
{
	pass_one("model.safetensors", open("/dev/zero", O_RDONLY | O_CLOEXEC));
	expect_done("EINVAL", "was passed model.safetensors, which is no regular file");
}

/* A file of /proc says that it has no bytes. */
Test(handed, a_file_of_proc_is_no_model)
{
	pass_one("model.safetensors", open("/proc/self/status", O_RDONLY | O_CLOEXEC));
	expect_done("EBADMSG", "hf:acme/tiny@0123abc/model.safetensors");
}

static void refuses_name(const char *name)
{
	char says[128];

	snprintf(says, sizeof(says), "was passed a file named \"%s\"", name);
	pass_one(name, open_model());
	expect_done("EINVAL", says);
}

Test(handed, a_name_that_leaves_the_folder_or_is_hidden_is_refused)
{
	refuses_name("../model.safetensors");
}

Test(handed, a_part_of_a_name_that_leaves_the_folder_is_refused)
{
	refuses_name("a/../../model.safetensors");
}

Test(handed, a_name_from_the_root_is_refused)
{
	refuses_name("/model.safetensors");
}

Test(handed, an_empty_part_of_a_name_is_refused)
{
	refuses_name("a/");
}

/* Weights in a subfolder are none of the folder's. */
Test(handed, names_may_have_subfolders)
{
	const char *names[] = {"1_Pooling/config.json", "2_Dense/model.safetensors", "model.safetensors"};
	int fds[] = {open(in_folder("config.json"), O_RDONLY | O_CLOEXEC), open_model(), open_model()};

	pass(send_load(), names, fds, 3, 3);
	expect_done("", "");
}

Test(handed, a_name_that_is_there_twice_is_refused)
{
	const char *names[] = {"model.safetensors", "model.safetensors"};
	int fds[] = {open_model(), open_model()};

	pass(send_load(), names, fds, 2, 2);
	expect_done("EINVAL", "was passed two files named \"model.safetensors\"");
}

Test(handed, names_and_files_must_be_as_many)
{
	const char *names[] = {"model.safetensors", "config.json"};
	int fds[] = {open_model()};

	pass(send_load(), names, fds, 2, 1);
	expect_done("EPROTO", "was passed 1 files with 2 names");
}

Test(handed, another_message_is_refused)
{
	struct message_writer w;
	const int sock = send_load();

	message_writer_init(&w, PACKET_BYTES_MAX);
	message_request(&w, 7, "hand_in");
	say(sock, &w, NULL, 0);
	close(sock);
	expect_done("EPROTO", "was passed something else than its files");
}

Test(handed, the_load_fails_if_the_other_process_goes_away)
{
	close(send_load());
	expect_done("ECONNABORTED", "went away before it passed the files");
}

Test(handed, the_load_does_not_wait_for_ever)
{
	kept = send_load();
	expect_done("ETIMEDOUT", "passed no files within 5 s");
}

/* ---- a loader that a service starts -------------------------------------- */

/* The service's configuration names no root, so that nothing with a path can be loaded. */
static void setup_service(void)
{
	roots = (struct roots_service){.own = true, .file = "/there/is/none"};
	setup();
}

TestSuite(handed_to_service, .init = setup_service, .fini = teardown, .timeout = 120);

Test(handed_to_service, files_that_are_passed_need_no_root)
{
	pass_one("model.safetensors", open_model());
	expect_done("", "");
}
