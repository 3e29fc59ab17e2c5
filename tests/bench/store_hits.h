#pragma once

namespace moestro::store {
/// Pins and unpins resident experts through a client of a store that runs in this process. Prints; returns an exit code.
int bench_hits();
}  // namespace moestro::store
