#pragma once
// How fast the lanes of a machine are.

#include <optional>

#include "common/planner/product_curve.h"

namespace moestro::planner {

struct Rates {
  ProductCurve dense;    ///< attention's matrices, MLPs and the head, in their precision
  ProductCurve experts;  ///< whole experts, in theirs
  ProductCurve router;   ///< f32
  double kv_bytes_per_s = 0;              ///< of decoding, which reads the cache once
  double attention_sequence_s = 0;        ///< of decoding, for each sequence in a layer, in addition
  double attention_operations_per_s = 0;  ///< of prompts, where many queries use what was read
  double float_s = 0;                     ///< of norms and sums, for each number
  double logit_s = 0;                     ///< of checking logits and choosing the highest, for each logit
  double call_s = 0;                      ///< around each operation, whatever its size
  double floor_s = 0;                     ///< least time of one expert and of one attention (emulated devices)
  std::optional<double> link_bytes_per_s;   ///< host to device; absent: the device computes from host memory
  double link_latency_s = 0;                ///< of each expert
  std::optional<double> drive_bytes_per_s;  ///< absent: unknown
  /// Of the host's processor, where it attends beside a device. Both or none: unknown.
  std::optional<double> host_bytes_per_s, host_operations_per_s;
};

}  // namespace moestro::planner
