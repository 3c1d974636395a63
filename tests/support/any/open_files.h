/* As many open files as gpuwm-keeper has. */
#ifndef GPUWM_TESTS_ANY_OPEN_FILES_H
#define GPUWM_TESTS_ANY_OPEN_FILES_H

/* Raises the soft limit of open files to the hard one, as gpuwm-keeper does at its start: the descriptors of a store have
 * numbers above its size, and the usual soft limit is 1,024. */
void open_files_raise(void);

#endif
