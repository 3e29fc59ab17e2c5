#pragma once
// XXH3 of large memory: the library's functions that choose, when the program runs, the widest vectors of its CPU. The ones they stand in for are compiled
// for the oldest x86-64 there is (5 against 24 GB/s on a Zen 4: `moestro_store_bench checksums`). The choice is made at the first call, of each function's default form: threads may race
// for it there, not in the forms with a seed or a secret.

#include <xxhash.h>
#if defined(__x86_64__) && __has_include(<xxh_x86dispatch.h>)
#include <xxh_x86dispatch.h>  // defines XXH3_64bits and XXH3_128bits anew
#endif
