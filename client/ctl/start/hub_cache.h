/* Where the Hugging Face hub's programs keep what they download. */
#ifndef GPUWM_CTL_HUB_CACHE_H
#define GPUWM_CTL_HUB_CACHE_H

#include <stdbool.h>
#include <stddef.h>

/* Sets ret_path to the folder that holds models--…: $HF_HUB_CACHE, else $HF_HOME/hub, else $XDG_CACHE_HOME/huggingface/hub, else
 * ~/.cache/huggingface/hub. It may not be there yet. Returns false if no variable names it, or if ret_path is too small. */
bool hub_cache_path(char *ret_path, size_t size);

#endif
