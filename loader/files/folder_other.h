/* What a folder without model files is, or has, instead. */
#ifndef GPUWM_LOADER_FOLDER_OTHER_H
#define GPUWM_LOADER_FOLDER_OTHER_H

#include "folder.h"

/* Sets the error for a folder that has no file of any format: it says what the folder is (a hub
 * repository, a folder of snapshots), or names the folders in it, and says which of them to name.
 * It reads names only, and none outside of the folder. Returns the error's code. */
int folder_explain(const struct folder *folder, struct error *error);

#endif
