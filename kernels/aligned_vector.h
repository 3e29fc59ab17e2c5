#pragma once
// A vector that begins at a cache line, so that no load of a whole register from its rows crosses one. On AVX2,
// products with rows that are 16 bytes off reach half to two thirds of the speed.

#include <boost/align/aligned_allocator.hpp>
#include <vector>

namespace moestro::kernels {

template <class T>
using AlignedVector = std::vector<T, boost::alignment::aligned_allocator<T, 64>>;

}  // namespace moestro::kernels
