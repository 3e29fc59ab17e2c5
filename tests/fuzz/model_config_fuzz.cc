// fuzz-deps: moestro_model
// config.json: the input up to the first zero byte; generation_config.json: what follows it.

#include <string>

#include "common/check.h"
#include "common/model/model_spec.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const size_t zero = text.find('\0');
  const auto d =
      moestro::model::describe_model(text.substr(0, zero), zero == std::string::npos ? "" : text.substr(zero + 1));
  if (!d) return 0;
  const auto& moe = d->spec.moe();
  MOESTRO_CHECK(static_cast<int64_t>(d->experts.size()) == d->spec.moe_layers() * moe.experts,
                "an entry for every expert");
  for (const auto& t : d->dense)
    for (const int64_t n : t.shape) MOESTRO_CHECK(n > 0, "shapes are whole");
  return 0;
}
