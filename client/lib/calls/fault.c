/* Names the tensor that a write into read-only memory was meant for, before the process dies of it. */
#include "../../../base/fork.h"
#include "../mapping/mapped_part.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

static bool installed; /* under fork_lock */
static struct sigaction previous; /* what SIGSEGV did before */
static char private_writes[80] = "private_writes"; /* how the program asks for them */

/* Where an address lies in a part. Of one that is parked, the rest is not known. */
struct place {
	const struct mapped_part *part;
	uint32_t segment; /* of the part's index */
	uint64_t offset;
};

static bool part_has(const struct mapped_part *part, uintptr_t address, struct place *ret)
{
	for (uint32_t i = 0; i < PART_SEGMENTS_MAX; i++) {
		const struct memory_segment *segment = mapped_part_segment(part, i);
		uintptr_t base = segment ? (uintptr_t)segment->address : 0;

		if (base && address >= base && address - base < segment->bytes) {
			*ret = (struct place){part, i, address - base};
			return true;
		}
	}
	return false;
}

/* Among what the library has mapped for reading only, on host. */
static bool fault_find_place(uintptr_t address, struct place *ret)
{
	for (const struct mapped_part *part = mapped_part_first(); part; part = part->next) {
		uintptr_t base = (uintptr_t)part->range.base;

		if (!part->device.ops->cpu_addresses || part->device.private_writes || !part->mapped ||
		    address < base || address - base >= part->range.bytes)
			continue;
		*ret = (struct place){.part = part};
		if (part->vacated || part_has(part, address, ret))
			return true;
	}
	return false;
}

/* NULL: the place is between tensors. */
static const char *tensor_at(const struct place *place)
{
	const struct index_view *view = &place->part->index.view;

	for (uint32_t i = 0; i < view->header->tensor_count; i++) {
		const struct index_tensor *tensor = &view->tensors[i];

		if (tensor->segment == place->segment && place->offset >= tensor->offset &&
		    place->offset - tensor->offset < tensor->bytes)
			return index_tensor_name(view, tensor);
	}
	return NULL;
}

#define FAULT_WORDS 8

static void tell_words(const char *const words[], size_t count)
{
	struct iovec pieces[FAULT_WORDS];
	ssize_t written;

	for (size_t i = 0; i < count; i++)
		pieces[i] = (struct iovec){(void *)words[i], strlen(words[i])};
	written = writev(STDERR_FILENO, pieces, (int)count);
	(void)written; /* the process dies in any case */
}

/* With what a signal's handler may call. */
static void fault_tell(const struct place *place)
{
	const char *tensor = place->part->vacated ? NULL : tensor_at(place);
	const char *parked[] = {
		"gpuwm: SIGSEGV: ",
		place->part->label,
		" is parked, and was read or written: nothing is mapped there until it is unparked\n",
	};
	const char *words[FAULT_WORDS] = {
		"gpuwm: SIGSEGV: a write into ",
		tensor ? "tensor " : "the padding between tensors",
		tensor ? tensor : "",
		" of ",
		place->part->label,
		", which is shared and read-only: write into a copy, or attach with ",
		private_writes,
		"\n",
	};

	if (place->part->vacated)
		tell_words(parked, sizeof(parked) / sizeof(parked[0]));
	else
		tell_words(words, FAULT_WORDS);
}

/* As if the handler had not been there. */
static void fault_pass_on(int number, siginfo_t *info, void *context)
{
	const bool calls = (previous.sa_flags & SA_SIGINFO) ||
			   (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN);

	if (!calls) {
		/* The access is tried again, and fails again; what a process sent comes only once. */
		sigaction(SIGSEGV, &previous, NULL);
		if (info->si_code <= 0)
			raise(number);
	} else if (previous.sa_flags & SA_SIGINFO) {
		previous.sa_sigaction(number, info, context);
	} else {
		previous.sa_handler(number);
	}
}

static void on_fault(int number, siginfo_t *info, void *context)
{
	struct place place;
	int saved = errno;

	if (info->si_code == SEGV_ACCERR && fault_find_place((uintptr_t)info->si_addr, &place)) {
		/* The write is tried again, and what was there before ends the process. It is put back first: another
		 * thread may be unmapping what is read here. */
		sigaction(SIGSEGV, &previous, NULL);
		fault_tell(&place);
	} else {
		fault_pass_on(number, info, context);
	}
	errno = saved;
}

void gpuwm_name_faults(const char *words)
{
	struct sigaction action;

	fork_lock();
	if (!installed) {
		if (words)
			snprintf(private_writes, sizeof(private_writes), "%s", words);
		/* It runs as the handler before it was to run, since that may be called from it. */
		sigaction(SIGSEGV, NULL, &previous);
		action = previous;
		action.sa_flags = SA_SIGINFO | SA_ONSTACK | (previous.sa_flags & SA_NODEFER);
		action.sa_sigaction = on_fault;
		sigaction(SIGSEGV, &action, NULL);
	}
	installed = true;
	fork_unlock();
}
