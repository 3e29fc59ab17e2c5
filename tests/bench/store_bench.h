#pragma once

namespace moestro::store {
/// Pins and unpins resident experts through a client of a store that runs in this process. Prints; returns an exit
/// code.
int bench_hits();
/// Checksums of slices that no cache holds: the store's, the library's plain ones, and a loop that only loads. Prints;
/// returns an exit code.
int bench_checksums();
}  // namespace moestro::store
