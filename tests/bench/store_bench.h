#pragma once

namespace moestro::store {
/// Pins and unpins resident experts through a client of a store in this process. Prints the results; returns an exit
/// code.
int bench_hits();
/// Checksums of uncached slices: the store's, the library's plain ones, and a loop that only loads. Prints the results;
/// returns an exit code.
int bench_checksums();
}  // namespace moestro::store
