#pragma once
// The flags of `moestro plan`, as given.

#include <cstdint>
#include <optional>
#include <string>

namespace moestro::cli {

struct PlanOptions {
  std::string pack, shape;         ///< one of them; shape: a name, a config.json or its folder
  std::string experts, dense;      ///< empty: the pack's first; bf16
  std::string kv_dtype = "f32";
  std::string device = "cpu", vram, dram, hardware, schedule = "auto";
  std::string drive;               ///< empty: the hardware file's, or measured
  std::string mixed = "off";       ///< or auto, or a setting of `moestro up --mixed`
  std::string max_loss;            ///< empty: 10 %, of --mixed 1 %
  int64_t prompt = 512, generate = 128, sequences = 1, step_tokens = 512;
  int threads = 0;                 ///< 0: one per core
  bool steps_grow = true;          ///< step_tokens is a default: schedules with micro-batches may have more
  bool prefetch = true, measure = false, json = false;
  bool measured_only = false;      ///< refuse where rates would have to be measured
  bool typical = false;            ///< where they would have to be measured, take typical ones
  std::optional<double> hits, foreseen;
};

}  // namespace moestro::cli
