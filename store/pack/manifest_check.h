#pragma once
#include <string>

#include "store/pack/manifest.h"

namespace moestro::store {

/// Checks everything that must hold between the numbers of a manifest: ranges, alignment, order, overlaps. Errors are
/// kCorrupt and name the first violation.
Status check_manifest(const Manifest& manifest);

/// Whether `name` is a plain file name: no separators, not "." or "..", no control characters, not empty?
bool is_plain_file_name(const std::string& name);

/// "expert 5 of MoE layer 3 (bf16)", for messages. `blob` < manifest.blobs.size().
std::string blob_label(const Manifest& manifest, uint32_t blob);

}  // namespace moestro::store
