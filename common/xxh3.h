#pragma once
// XXH3 of large memory: the library's functions that choose, when the program runs, the widest vectors of its CPU.
// Those they stand in for are compiled for the oldest x86-64 there is (5 against 25 GB/s on a Zen 4:
// `moestro_store_bench checksums`). The choice is made at the first call. Threads may race for it in the forms without
// seed and secret, which look for the very pointer they then call, and in no other.

#include <xxhash.h>
#if defined(__x86_64__) && __has_include(<xxh_x86dispatch.h>)
#include <xxh_x86dispatch.h>  // defines XXH3_64bits and XXH3_128bits anew
#endif
