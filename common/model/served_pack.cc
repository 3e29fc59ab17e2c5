#include "common/model/served_pack.h"

#include <fstream>
#include <iterator>
#include <string>

#include "common/model/model_spec.h"

namespace moestro::model {

Status check_served(const std::filesystem::path& pack) {
  std::ifstream file(pack / "config.json", std::ios::binary);
  const std::string config{std::istreambuf_iterator<char>(file), {}};
  const auto model = describe_model(config, "");
  return model.is_ok() ? check_decoder_only(model->spec, "serving") : Status::ok();
}

}  // namespace moestro::model
