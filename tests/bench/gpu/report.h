#pragma once
#include <string>
#include <vector>

#include "tests/bench/gpu/gpu_bench.h"

namespace moestro::bench {

/// One line of the table; the head of it.
std::string row_text(const GpuRow& row);
std::string head_text();
/// {"device": ..., "rows": [{"what", "value", "unit", "ceiling", "ceiling_is", "ratio", "aim", "failed"}]}; what is not
/// there is null.
std::string rows_json(const std::string& device, const std::vector<GpuRow>& rows);

}  // namespace moestro::bench
