/* The maker of memory hands its descriptor to other processes at a socket. Memory that is opened anew by
 * /proc does not count (usage.c), and processes of other users may not open it there. */
#ifndef FAKECUDA_IPC_PASS_H
#define FAKECUDA_IPC_PASS_H

#include "driver.h"

#include <sys/types.h>

/* From now on this process hands out its memory. Again: nothing. */
bool pass_begin(void);
/* The memory that is the maker's descriptor fd. -1: the maker is gone, or has no such memory. */
int pass_ask(pid_t maker, int fd);

#endif
