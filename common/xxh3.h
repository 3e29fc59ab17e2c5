#pragma once
// XXH3 of large memory, with the library's functions that choose the widest vectors of the CPU at run time. The plain
// functions are compiled for the oldest x86-64 (5 instead of 25 GB/s on a Zen 4: `moestro_store_bench checksums`). The
// choice is made at the first call. Several threads may make the first call at once only for the forms without seed and
// secret, which check the same pointer that they then call.

#include <xxhash.h>
#if defined(__x86_64__) && __has_include(<xxh_x86dispatch.h>)
#include <xxh_x86dispatch.h>  // defines XXH3_64bits and XXH3_128bits anew
#endif
