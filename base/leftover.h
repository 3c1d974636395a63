/* What a process makes for a while, and leaves behind when it is killed: files with temporary names, folders of sockets. Their names
 * say which process made them, so that a later one can remove what is left, and nothing else.
 *
 * The text that a name has: the boot of the machine, the pid namespace, the pid, and when the process started. It means nothing on
 * another host, in another container or after a reboot: what such a process left stays. */
#ifndef GPUWM_BASE_LEFTOVER_H
#define GPUWM_BASE_LEFTOVER_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#define LEFTOVER_MAKER_BYTES 80

enum leftover_maker {
	MAKER_UNKNOWN, /* the text is none, or of another boot or pid namespace */
	MAKER_LIVES, /* or can't be looked at */
	MAKER_GONE,
};

/* Writes the text of this process. Where the machine does not tell all of it (no /proc), nobody removes what has the text. */
void leftover_maker_write(char ret[LEFTOVER_MAKER_BYTES]);
/* Finds out what became of the process of a text, which ends at the first character that such a text does not have. */
enum leftover_maker leftover_maker_look(const char *text);

/* Makes a name that no other process makes, nor can make beforehand, for a file that is to be called `of`: hidden, and with ".tmp" at
 * its end. Slashes in `of` become dashes. Returns 0, or -errno if the kernel gives no random bytes. */
int leftover_name(const char *of, char ret[NAME_MAX + 1]);

/* What became of files with such names. */
struct leftovers {
	size_t removed;
	size_t unknown; /* of this user, and made on another host, in another container or before a reboot; they stay */
	char example[NAME_MAX + 1]; /* one of these */
	size_t living; /* of this user, whose processes work on them */
	char worked_on[NAME_MAX + 1]; /* one of these */
};

/* Removes regular files of this user with such names from the folder, if the processes that made them are gone. Returns 0, or -errno if
 * the folder can't be read. */
int leftovers_remove(int folder, struct leftovers *ret);

#endif
