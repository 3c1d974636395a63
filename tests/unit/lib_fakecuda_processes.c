/* Whose memory it is, and for how long: tests/fakecuda across processes. */
#ifdef GPUWM_CUDA

#include "tests/support/lib/fakecuda.h"

#include "../../proto/wire/packet.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>

TestSuite(fakecuda_processes, .init = fakecuda_open);

static uint8_t packet_bytes[PACKET_BYTES_MAX + 1];

static int take_descriptor(int sock)
{
	struct packet packet = {.data = packet_bytes};
	struct pollfd ready = {.fd = sock, .events = POLLIN};
	int fd = -1;

	cr_assert(poll(&ready, 1, 10000) == 1);
	cr_assert(packet_receive(sock, true, &packet) == 1 && packet_take_fd(&packet, 0, &fd) == 0);
	return fd;
}

/* In a child: makes `bytes` filled with `byte`, hands the descriptor over and stays. */
static void make_and_stay(int sock, size_t bytes, unsigned char byte)
{
	CUmemGenericAllocationHandle handle;
	CUdeviceptr address;
	int fd;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	GOOD(cu.cuInit(0));
	enter(0);
	GOOD(create(&handle, bytes, 0));
	address = map(handle, bytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	GOOD(cu.cuMemsetD8_v2(address, byte, bytes));
	GOOD(export(handle, &fd));
	cr_assert(packet_send(sock, "m", 1, &fd, 1) == 0);
	close(fd);
	for (;;)
		pause();
}

/* A maker of memory and its exported descriptor. */
static pid_t maker_start(size_t bytes, unsigned char byte, int *ret_fd)
{
	int ends[2];
	pid_t child;

	cr_assert(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
	child = fork();
	if (child == 0)
		make_and_stay(ends[1], bytes, byte);
	*ret_fd = take_descriptor(ends[0]);
	close(ends[0]);
	close(ends[1]);
	return child;
}

static void kill_and_wait(pid_t child)
{
	int status;

	kill(child, SIGKILL);
	cr_assert(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
}

static unsigned char byte_at(CUdeviceptr address)
{
	unsigned char byte;

	GOOD(cu.cuMemcpyDtoH_v2(&byte, address, 1));
	return byte;
}

Test(fakecuda_processes, a_bare_descriptor_keeps_memory_of_a_killed_maker)
{
	CUmemGenericAllocationHandle handle;
	CUdeviceptr address;
	int fd;

	kill_and_wait(maker_start(2 * MIB2, 42, &fd));
	cr_assert(used() == 2 * MIB2);
	GOOD(cu.cuInit(0));
	enter(0);
	GOOD(import(&handle, fd));
	address = map(handle, 2 * MIB2, CU_MEM_ACCESS_FLAGS_PROT_READ);
	cr_assert(byte_at(address) == 42 && byte_at(address + 2 * MIB2 - 1) == 42);
	unmap(address, 2 * MIB2);
	GOOD(cu.cuMemRelease(handle));
	cr_assert(used() == 2 * MIB2, "the descriptor alone holds it");
	close(fd);
	cr_assert(used() == 0);
}

Test(fakecuda_processes, a_mapping_alone_keeps_memory)
{
	CUmemGenericAllocationHandle handle;
	CUdeviceptr address;
	pid_t maker;
	int fd;

	maker = maker_start(MIB2, 7, &fd);
	GOOD(cu.cuInit(0));
	enter(0);
	GOOD(import(&handle, fd));
	address = map(handle, MIB2, CU_MEM_ACCESS_FLAGS_PROT_READ);
	GOOD(cu.cuMemRelease(handle));
	close(fd);
	kill_and_wait(maker);
	cr_assert(used() == MIB2 && byte_at(address) == 7);
	unmap(address, MIB2);
	cr_assert(used() == 0);
}

Test(fakecuda_processes, memory_is_counted_once_and_told_alike_everywhere)
{
	CUmemGenericAllocationHandle handle;
	CUdeviceptr address;
	size_t free_bytes, total;
	pid_t first, second;
	int fd, other;

	first = maker_start(MIB2, 1, &fd);
	second = maker_start(3 * MIB2, 2, &other);
	GOOD(cu.cuInit(0));
	enter(0);
	GOOD(import(&handle, fd));
	address = map(handle, MIB2, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	GOOD(cu.cuMemGetInfo_v2(&free_bytes, &total));
	cr_assert(used() == 4 * MIB2 && total - free_bytes == 4 * MIB2);
	close(other);
	kill_and_wait(second);
	cr_assert(used() == MIB2);
	unmap(address, MIB2);
	GOOD(cu.cuMemRelease(handle));
	close(fd);
	kill_and_wait(first);
	GOOD(cu.cuMemGetInfo_v2(&free_bytes, &total));
	cr_assert(used() == 0 && free_bytes == total);
}

/* The maker has ended, and nobody has read the packet. */
Test(fakecuda_processes, memory_on_its_way_in_a_socket_is_counted)
{
	int ends[2], status;
	pid_t maker;

	cr_assert(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
	maker = fork();
	if (maker == 0) {
		CUmemGenericAllocationHandle handle;
		int fd;

		GOOD(cu.cuInit(0));
		GOOD(create(&handle, MIB2, 0));
		GOOD(export(handle, &fd));
		_exit(packet_send(ends[1], "m", 1, &fd, 1) == 0 ? 0 : 1);
	}
	cr_assert(waitpid(maker, &status, 0) == maker && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	cr_assert(used() == MIB2);
	close(ends[0]);
	cr_assert(used() == 0);
	close(ends[1]);
}

/* In a child: makes memory, says its handle and stays. */
static void share_and_stay(int to)
{
	CUipcMemHandle handle;
	CUdeviceptr address;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	GOOD(cu.cuInit(0));
	enter(0);
	GOOD(cu.cuMemAlloc_v2(&address, MIB2));
	GOOD(cu.cuIpcGetMemHandle(&handle, address));
	cr_assert(write(to, &handle, sizeof(handle)) == sizeof(handle));
	for (;;)
		pause();
}

Test(fakecuda_processes, memory_of_an_opened_handle_is_counted_once_and_without_its_maker)
{
	CUipcMemHandle handle;
	CUdeviceptr address;
	pid_t maker;
	int ends[2];

	cr_assert(pipe2(ends, O_CLOEXEC) == 0);
	maker = fork();
	if (maker == 0)
		share_and_stay(ends[1]);
	cr_assert(read(ends[0], &handle, sizeof(handle)) == sizeof(handle));
	GOOD(cu.cuInit(0));
	enter(0);
	GOOD(cu.cuIpcOpenMemHandle_v2(&address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	cr_assert(used() == MIB2);
	kill_and_wait(maker);
	cr_assert(used() == MIB2);
	GOOD(cu.cuIpcCloseMemHandle(address));
	cr_assert(used() == 0);
}

/* In a child: has a lock that comes and goes, as those of other programs of the machine. */
static void lock_and_unlock_for_ever(void)
{
	struct flock range = {.l_whence = SEEK_SET, .l_len = 1};
	int fd = memfd_create("locked", MFD_CLOEXEC);

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;) {
		range.l_type = F_WRLCK;
		cr_assert(fcntl(fd, F_OFD_SETLK, &range) == 0);
		range.l_type = F_UNLCK;
		cr_assert(fcntl(fd, F_OFD_SETLK, &range) == 0);
	}
}

Test(fakecuda_processes, locks_that_come_and_go_elsewhere_change_nothing)
{
	enum { COUNT = 150, LOOKS = 300 }; /* so many locks fill several pages of /proc/locks */
	CUmemGenericAllocationHandle handle;
	pid_t other = fork();

	if (other == 0)
		lock_and_unlock_for_ever();
	GOOD(cu.cuInit(0));
	for (int i = 0; i < COUNT; i++)
		GOOD(create(&handle, MIB2, 0));
	for (int i = 0; i < LOOKS; i++)
		cr_assert_eq(used(), COUNT * MIB2);
	kill_and_wait(other);
}

Test(fakecuda_processes, writes_are_seen_by_all_who_map)
{
	CUmemGenericAllocationHandle handle;
	CUdeviceptr address;
	int fd, status;
	pid_t maker = maker_start(MIB2, 0, &fd), writer;

	writer = fork();
	if (writer == 0) {
		GOOD(cu.cuInit(0));
		enter(0);
		GOOD(import(&handle, fd));
		address = map(handle, MIB2, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
		GOOD(cu.cuMemsetD8_v2(address, 9, MIB2));
		_exit(0);
	}
	GOOD(cu.cuInit(0));
	enter(0);
	GOOD(import(&handle, fd));
	address = map(handle, MIB2, CU_MEM_ACCESS_FLAGS_PROT_READ);
	cr_assert(waitpid(writer, &status, 0) == writer && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	cr_assert(byte_at(address) == 9 && *(volatile unsigned char *)(address + MIB2 - 1) == 9);
	kill_and_wait(maker);
}

Test(fakecuda_processes, memory_of_a_hidden_device_is_not_taken)
{
	CUmemGenericAllocationHandle handle;
	int fd;
	pid_t maker = maker_start(MIB2, 1, &fd);

	setenv("CUDA_VISIBLE_DEVICES", "1", 1);
	GOOD(cu.cuInit(0));
	IS(CUDA_ERROR_INVALID_DEVICE, import(&handle, fd));
	kill_and_wait(maker);
}

Test(fakecuda_processes, a_device_number_is_each_processs_own)
{
	CUmemGenericAllocationHandle handle;
	CUdeviceptr address;
	int fd;
	pid_t maker = maker_start(MIB2, 5, &fd);

	setenv("CUDA_VISIBLE_DEVICES", "1,0", 1);
	GOOD(cu.cuInit(0));
	enter(1);
	GOOD(import(&handle, fd));
	GOOD(cu.cuMemAddressReserve(&address, MIB2, 0, 0, 0));
	GOOD(cu.cuMemMap(address, MIB2, 0, handle, 0));
	GOOD(set_access(address, MIB2, 1, CU_MEM_ACCESS_FLAGS_PROT_READ));
	cr_assert(byte_at(address) == 5);
	kill_and_wait(maker);
}

Test(fakecuda_processes, test_runs_do_not_mix)
{
	CUmemGenericAllocationHandle handle;
	char run[64];
	int fd;
	pid_t maker = maker_start(MIB2, 1, &fd);

	/* The settings are read at the first call, which this process has not made. */
	snprintf(run, sizeof run, "%s0", getenv("FAKECUDA_RUN"));
	setenv("FAKECUDA_RUN", run, 1);
	cr_assert(used() == 0);
	GOOD(cu.cuInit(0));
	IS(CUDA_ERROR_UNKNOWN, import(&handle, fd));
	kill_and_wait(maker);
}

Test(fakecuda_processes, a_forked_child_has_no_device_memory)
{
	CUmemGenericAllocationHandle handle;
	CUdeviceptr address;
	int status;
	pid_t child;

	GOOD(cu.cuInit(0));
	GOOD(create(&handle, MIB2, 0));
	address = map(handle, MIB2, CU_MEM_ACCESS_FLAGS_PROT_READ);
	child = fork();
	if (child == 0)
		_exit(faults(address, false));
	cr_assert(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 1);
	cr_assert(!faults(address, false));
}

#endif
