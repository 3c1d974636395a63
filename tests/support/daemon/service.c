#include "service.h"

#include "tests/support/any/own_folder.h"

int listener = -1;

void open_service(void)
{
	server_open();
	log_level_set(LOG_LEVEL_ERROR);
	snprintf(config.loader_socket, sizeof(config.loader_socket), "%s/unit.sock", own_folder());
	config.loaders = 1;
}

void close_service(void)
{
	if (listener >= 0)
		close(listener);
	unlink(config.loader_socket);
	if (server)
		server_close();
}

void leave(void)
{
	forget();
	server = server_free(server);
	if (listener >= 0)
		close(listener);
	listener = -1;
	cr_assert_eq(fd_count(), fds_before, "%d descriptors, %d before", fd_count(), fds_before);
}

/* ---- the service ---- */

struct sockaddr_un address_of(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	strcpy(address.sun_path, path);
	return address;
}

void listen_for(int type, int backlog)
{
	struct sockaddr_un address = address_of(config.loader_socket);

	listener = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	cr_assert_eq(bind(listener, (struct sockaddr *)&address, sizeof(address)), 0);
	cr_assert_eq(listen(listener, backlog), 0);
}

int accept_one(void)
{
	int sock = -1;

	TURN_UNTIL((sock = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) >= 0);
	return sock;
}

void begin_hello(struct message_writer *w)
{
	begin_request(w, 1, "loader_hello");
	message_put_u64(w, "protocol_min", PROTOCOL_MIN);
	message_put_u64(w, "protocol_max", PROTOCOL_MAX);
	message_put_u64(w, "pid", 12345);
	message_begin_array(w, "devices");
	message_end(w);
}

int hello_with(int sock, int fd)
{
	struct message_writer w;

	begin_hello(&w);
	if (fd >= 0)
		message_put_u64(&w, "pidfd", 0);
	message_end(&w);
	cr_assert_eq(message_finish(&w), 0);
	cr_assert_eq(packet_send(sock, w.buffer.data, w.buffer.size, &fd, fd >= 0), 0);
	message_writer_clear(&w);
	return answered(sock);
}

int standby_with(int fd)
{
	int sock = accept_one();

	cr_assert_eq(hello_with(sock, fd), 0, "%s", message.error.message);
	cr_assert(loader_pool_standby(server->work.loaders) || server->work.jobs.running);
	return sock;
}

/* A process that lives until it is killed, in a loader's place. */
static pid_t child;
int child_pidfd(void)
{
	int fd;

	child = fork();
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL); /* of a test that failed nothing is left */
		for (;;)
			pause();
	}
	fd = (int)syscall(SYS_pidfd_open, child, 0);
	cr_assert_geq(fd, 0);
	return fd;
}

void child_dies(void)
{
	kill(child, SIGKILL);
	cr_assert_eq(waitpid(child, NULL, 0), child);
}

/* ---- gpuwmd ---- */

void pool_start(void)
{
	loader_pool_start(server->work.loaders, NULL, NULL);
}

struct job *new_job(void)
{
	struct job *job = new_load("/models/m", "v1", 0);

	cr_assert_eq(job_add_device(job, device_find(&server->ledger.devices, DEVICE_HOST)), 0);
	loader_pool_turn(server->work.loaders);
	return job;
}

void expect_job_failed(const struct job *job, const char *says, const char *remedy)
{
	cr_assert_eq(job->state, JOB_FAILED, "%s", job_state_name(job->state));
	cr_expect_eq(job->error->code, -EIO);
	cr_expect(strstr(job->error->message, says), "\"%s\" does not say \"%s\"", job->error->message, says);
	cr_expect(strstr(job->error->detail, remedy), "\"%s\" does not say \"%s\"", job->error->detail, remedy);
}

struct fields job_told(int sock)
{
	const msgpack_object *jobs;
	struct fields f, job;
	uint32_t count;

	cr_assert_eq(ask(sock, "jobs"), 0, "%s", message.error.message);
	fields_of(&f, message.body);
	jobs = fields_array(&f, "jobs", &count);
	cr_assert_eq(count, 1);
	fields_of(&job, jobs);
	return job;
}

void say_progress(int sock)
{
	struct message_writer w;

	message_writer_init(&w, PACKET_BYTES_MAX);
	message_notification(&w, "loader_progress");
	message_put_text(&w, "phase", "opening");
	message_put_u64(&w, "done", 0);
	message_put_u64(&w, "total", 0);
	send_request(sock, &w);
	turn();
}

void send_checked(int sock, const struct version_id *publish, const char *device)
{
	static const uint8_t digest[16];
	int fds[2] = {memfd_create("index", MFD_CLOEXEC), memfd_create("segment", MFD_CLOEXEC)};
	struct message_writer w;

	begin_request(&w, 3, "loader_checked");
	message_put_hex128(&w, "publish", publish->bytes);
	message_put_text(&w, "device", device);
	message_put_u64(&w, "rank", 0);
	message_put_u64(&w, "tensors", 1);
	message_put_hex128(&w, "content", digest);
	message_put_hex128(&w, "layout", digest);
	message_put_u64(&w, "index", 0);
	message_put_u64(&w, "index_bytes", 100);
	message_begin_array(&w, "segments");
	message_begin_map(&w, NULL);
	message_put_u64(&w, "fd", 1);
	message_put_u64(&w, "bytes", 4096);
	message_end(&w);
	message_end(&w);
	message_end(&w);
	cr_assert_eq(message_finish(&w), 0);
	cr_assert_eq(packet_send(sock, w.buffer.data, w.buffer.size, fds, 2), 0);
	message_writer_clear(&w);
	close(fds[0]);
	close(fds[1]);
}

int loader_moves(int sock, uint32_t count, uint64_t bytes)
{
	int fds[PACKET_FDS_MAX];
	struct message_writer w;

	begin_request(&w, 3, "loader_moved");
	message_put_u64(&w, "rank", 0);
	message_put_text(&w, "device", DEVICE_HOST);
	message_begin_array(&w, "segments");
	for (uint32_t i = 0; i < count; i++) {
		fds[i] = memfd_create("segment", MFD_CLOEXEC);
		message_begin_map(&w, NULL);
		message_put_u64(&w, "fd", i);
		message_put_u64(&w, "bytes", bytes);
		message_end(&w);
	}
	message_end(&w);
	message_end(&w);
	cr_assert_eq(message_finish(&w), 0);
	cr_assert_eq(packet_send(sock, w.buffer.data, w.buffer.size, fds, count), 0);
	message_writer_clear(&w);
	for (uint32_t i = 0; i < count; i++)
		close(fds[i]);
	TURN_UNTIL(comes(sock) && message.type == MESSAGE_RESPONSE);
	return message.error.code;
}

void loader_ends(int sock, int code, const char *what)
{
	struct error error = {.code = code};
	struct message_writer w;

	snprintf(error.message, sizeof(error.message), "%s", what);
	begin_request(&w, 2, "loader_done");
	if (code)
		message_put_error(&w, "error", &error);
	send_request(sock, &w);
	TURN_UNTIL(comes(sock) && message.type == MESSAGE_RESPONSE);
	cr_assert_eq(message.error.code, 0, "%s", message.error.message);
}
