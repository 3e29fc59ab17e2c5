#include "common/model/served_pack.h"

#include <fstream>
#include <iterator>

namespace moestro::model {

Status check_device(const ModelSpec& spec, const std::string& device, bool is_gpu) {
  if (!is_gpu || !spec.is_encoder_decoder()) return Status::ok();
  return unsupported("--device " + device + " with " + spec.architecture +
                     ": GPUs do not compute encoder-decoder models yet; take --device cpu");
}

Status check_device(const std::filesystem::path& pack, const std::string& device, bool is_gpu) {
  std::ifstream file(pack / "config.json", std::ios::binary);
  const std::string config{std::istreambuf_iterator<char>(file), {}};
  const auto model = describe_model(config, "");
  return model.is_ok() ? check_device(model->spec, device, is_gpu) : Status::ok();
}

}  // namespace moestro::model
