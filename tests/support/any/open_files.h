/* As many open files as services have. */
#ifndef GPUWM_TESTS_ANY_OPEN_FILES_H
#define GPUWM_TESTS_ANY_OPEN_FILES_H

/* Raises the soft limit of open files to the hard one, because the usual soft limit is 1,024. gpuwmd and gpuwm-keeper raise
 * theirs at their start. Fails the test if the limit can't be raised. */
void open_files_raise(void);

#endif
