#pragma once
// A vector that begins at a cache line, so that no load of a whole register from its rows crosses one: every second
// load would, where memory begins 16 bytes off, as that of a plain vector does.

#include <boost/align/aligned_allocator.hpp>
#include <vector>

namespace moestro::kernels {

template <class T>
using AlignedVector = std::vector<T, boost::alignment::aligned_allocator<T, 64>>;

}  // namespace moestro::kernels
