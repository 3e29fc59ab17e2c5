#pragma once
#include <string>

#include "store/pack/manifest.h"

namespace moestro::store {

/// Everything that must hold between the numbers of a manifest, whoever wrote it: ranges, alignment, order, overlaps.
/// Errors are kCorrupt and name the first offender.
Status check_manifest(const Manifest& manifest);

/// Is `name` a file name of its own: no separators, not "." or "..", no control characters, not empty?
bool is_plain_file_name(const std::string& name);

/// "expert 5 of MoE layer 3 (bf16)", for messages. `blob` < manifest.blobs.size().
std::string blob_label(const Manifest& manifest, uint32_t blob);

}  // namespace moestro::store
