/* Other processes of the same user, which the kernel lets trace a program and take its descriptors. */
#ifndef GPUWM_SERVICE_PRIVACY_H
#define GPUWM_SERVICE_PRIVACY_H

/* Makes this process one that only root may trace, and whose memory and descriptors only root may read. The kernel
 * writes no core of it. First thing in a program: exec takes it back. -errno. */
int privacy_begin(void);

#endif
