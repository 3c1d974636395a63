/* Put before a program (LD_PRELOAD), writes the name of each of the driver's functions that it calls to the file
 * that DRIVER_CALLS names, a line each, in order: of those that are looked up with dlsym, as gpuwm does. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef __x86_64__

#define CALLS_MAX 256
#define STUB_BYTES 16

static struct {
	char name[64];
	void *real;
} calls[CALLS_MAX];
static int count;

extern const char driver_calls_stubs[] __attribute__((visibility("hidden")));
void *driver_calls_told(unsigned long number) __attribute__((visibility("hidden"), used));
void *dlsym(void *restrict handle, const char *restrict name) __attribute__((visibility("default")));

/* Stub n puts n on the stack; then one way for all: arguments kept, told, and on to the driver. */
__asm__(".text\n"
	".balign 16\n"
	"driver_calls_stubs:\n"
	".set number, 0\n"
	".rept 256\n"
	".balign 16\n"
	"pushq $number\n"
	"jmp driver_calls_all\n"
	".set number, number + 1\n"
	".endr\n"
	"driver_calls_all:\n"
	"xchgq %rdi, (%rsp)\n" /* the number in rdi, the first argument where it was */
	"pushq %rsi\npushq %rdx\npushq %rcx\npushq %r8\npushq %r9\n"
	"subq $8, %rsp\n"
	"call driver_calls_told\n"
	"addq $8, %rsp\n"
	"popq %r9\npopq %r8\npopq %rcx\npopq %rdx\npopq %rsi\npopq %rdi\n"
	"jmp *%rax\n");

void *driver_calls_told(unsigned long number)
{
	static int file = -1;
	char line[sizeof calls[0].name + 1];
	size_t bytes = strlen(calls[number].name);

	if (file < 0)
		file = open(getenv("DRIVER_CALLS"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	memcpy(line, calls[number].name, bytes);
	line[bytes] = '\n';
	if (write(file, line, bytes + 1) < 0)
		abort();
	return calls[number].real;
}

/* glibc moved it from libdl to libc. */
static void *real_dlsym(void *handle, const char *name)
{
	static void *(*real)(void *, const char *);

	if (!real)
		*(void **)&real = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
	if (!real)
		*(void **)&real = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
	return real(handle, name);
}

void *dlsym(void *restrict handle, const char *restrict name)
{
	void *real = real_dlsym(handle, name);

	if (!real || strncmp(name, "cu", 2) != 0 || !getenv("DRIVER_CALLS") || count == CALLS_MAX ||
	    strlen(name) >= sizeof calls[0].name)
		return real;
	strcpy(calls[count].name, name);
	calls[count].real = real;
	return (void *)(driver_calls_stubs + (size_t)count++ * STUB_BYTES);
}

#endif
