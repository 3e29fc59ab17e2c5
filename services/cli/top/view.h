#pragma once
// The page that `moestro top` draws.

#include <string>
#include <vector>

#include "services/cli/top/rates.h"

namespace moestro::cli {

/// None is longer than `columns` characters; 80 are enough for names of usual length, longer ones lose their middle.
std::vector<std::string> top_page(const StoreLook& now, const StoreRates& rates, size_t columns);

/// "83 %" of 0.83; "-" of what is negative.
std::string percent(double share);

/// "a-long-na..cut.bf16": at most `width` bytes.
std::string shortened(const std::string& name, size_t width);

}  // namespace moestro::cli
