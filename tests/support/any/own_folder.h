/* A folder of this process alone, for the files of a test. */
#ifndef GPUWM_TESTS_ANY_OWN_FOLDER_H
#define GPUWM_TESTS_ANY_OWN_FOLDER_H

/* Returns the path of a folder below /tmp, the same at each call. The first call makes the folder. Its name is random, so
 * that nothing which another test or another user has left is in the way. Other users may read the folder. When this process
 * exits, the folder and what is in it are removed. Fails the test if the folder can't be made. */
const char *own_folder(void);

#endif
