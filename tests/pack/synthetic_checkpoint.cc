#include "tests/pack/synthetic_checkpoint.h"

#include <unistd.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "common/check.h"
#include "common/model/expert_storage.h"
#include "store/pack/convert.h"
#include "store/pack/expert_matrix.h"

namespace moestro::testing {
namespace {

namespace fs = std::filesystem;

class SyntheticTensor {
 public:
  explicit SyntheticTensor(const std::string& name) : hash_(std::hash<std::string>{}(name)) {}
  float at(int64_t index) const {
    uint64_t x = hash_ + static_cast<uint64_t>(index) * 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 31)) * 0xbf58476d1ce4e5b9ull;
    x ^= x >> 29;
    return static_cast<float>(static_cast<int64_t>(x % 20001) - 10000) / 8192.0f;
  }

 private:
  uint64_t hash_;
};

struct Shard {
  nlohmann::json header = nlohmann::json::object();
  std::string data;
};

void add_tensor(Shard& shard, const CheckpointOptions& options, const std::string& name,
                const std::vector<int64_t>& shape) {
  const auto other = options.other_dtypes.find(name);
  const DType dtype = other == options.other_dtypes.end() ? options.dtype : other->second;
  int64_t n = 1;
  for (const int64_t s : shape) n *= s;
  std::vector<float> values(static_cast<size_t>(n));
  const SyntheticTensor tensor(name);
  for (int64_t i = 0; i < n; ++i)
    values[static_cast<size_t>(i)] = options.value ? options.value(name, i) : tensor.at(i) + options.shift;
  std::string bytes(static_cast<size_t>(n * dtype_bytes(dtype)), '\0');
  const bool fits = store::convert_values(DType::kF32, reinterpret_cast<const std::byte*>(values.data()), dtype,
                                          reinterpret_cast<std::byte*>(bytes.data()), n);
  MOESTRO_CHECK(fits, "test values fit their format");
  const char* format = dtype == DType::kF32 ? "F32" : dtype == DType::kBF16 ? "BF16" : "F16";
  shard.header[name] = {
      {"dtype", format}, {"shape", shape}, {"data_offsets", {shard.data.size(), shard.data.size() + bytes.size()}}};
  shard.data += bytes;
}

uint8_t byte_of(const std::string& name, const SyntheticTensor& tensor, int64_t index) {
  const auto x = static_cast<uint32_t>((tensor.at(index) + 2.0f) * 8192.0f);
  return static_cast<uint8_t>(name.ends_with("_scales") ? 118 + x % 16 : x % 256);
}

void add_bytes(Shard& shard, const std::string& name, const std::vector<int64_t>& shape) {
  int64_t n = 1;
  for (const int64_t s : shape) n *= s;
  std::string bytes(static_cast<size_t>(n), '\0');
  const SyntheticTensor tensor(name);
  for (int64_t i = 0; i < n; ++i) bytes[static_cast<size_t>(i)] = static_cast<char>(byte_of(name, tensor, i));
  shard.header[name] = {
      {"dtype", "U8"}, {"shape", shape}, {"data_offsets", {shard.data.size(), shard.data.size() + bytes.size()}}};
  shard.data += bytes;
}

/// The tensors of all experts, each once.
std::map<std::string, std::vector<int64_t>> expert_tensors(const model::ModelDescription& model) {
  using model::ExpertPart;
  std::map<std::string, std::vector<int64_t>> tensors;
  for (const auto& e : model.experts) {
    const std::tuple<ExpertPart, std::string, std::string> parts[] = {{ExpertPart::kGate, e.gate, e.gate_bias},
                                                                      {ExpertPart::kUp, e.up, e.up_bias},
                                                                      {ExpertPart::kDown, e.down, e.down_bias}};
    for (const auto& [part, name, bias] : parts) {
      if (name.empty()) continue;  // an expert without a gate
      std::vector<int64_t> shape = view_of(model, e, part).shape;
      if (!bias.empty()) tensors[bias] = bias_view_of(model, e, part).shape;
      if (model.spec.quantisation.method != model::Quantisation::Method::kMxfp4) {
        tensors[name] = std::move(shape);
        continue;
      }
      shape.back() /= 32;
      tensors[name + "_scales"] = shape;
      shape.push_back(16);
      tensors[name + "_blocks"] = shape;
    }
  }
  return tensors;
}

}  // namespace

uint8_t synthetic_byte(const std::string& tensor, int64_t index) {
  return byte_of(tensor, SyntheticTensor(tensor), index);
}

float synthetic_value(const std::string& tensor, int64_t index) {
  // Most calls are for the tensor of the last one.
  thread_local std::string last;
  thread_local SyntheticTensor values(last);
  if (tensor != last) values = SyntheticTensor(last = tensor);
  return values.at(index);
}

TemporaryDirectory::TemporaryDirectory() {
  std::string name = (fs::temp_directory_path() / "moestro-test-XXXXXX").string();
  MOESTRO_CHECK(mkdtemp(name.data()) != nullptr, "a temporary directory");
  path_ = name;
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

std::string synthetic_config(const CheckpointOptions& o) {
  nlohmann::json c = {{"architectures", {o.architecture}}, {"hidden_size", o.hidden}, {"num_hidden_layers", o.layers},
                      {"num_attention_heads", 4}, {"num_key_value_heads", 2}, {"head_dim", 16}, {"vocab_size", o.vocab},
                      {"max_position_embeddings", 64}, {"intermediate_size", o.ffn}, {"num_experts_per_tok", 2}};
  const auto& name = o.architecture;
  if (name == "Llama4ForConditionalGeneration") {
    CheckpointOptions text = o;
    text.architecture = "Llama4ForCausalLM";
    return nlohmann::json{{"architectures", {name}},
                          {"vision_config", nlohmann::json::object()},
                          {"text_config", nlohmann::json::parse(synthetic_config(text))}}
        .dump();
  }
  if (name == "SwitchTransformersForConditionalGeneration" || name == "NllbMoeForConditionalGeneration") {
    c = {{"architectures", {name}}, {"is_encoder_decoder", true}, {"d_model", o.hidden}, {"vocab_size", o.vocab},
         {"num_experts", o.experts}, {"pad_token_id", 1}};
    if (name.starts_with("Switch"))
      c.update({{"d_kv", 16}, {"d_ff", o.ffn}, {"num_heads", 4}, {"num_layers", o.layers},
                {"num_sparse_encoder_layers", 1}, {"num_sparse_decoder_layers", 1}});
    else
      for (const std::string stack : {"encoder", "decoder"})
        c.update({{stack + "_layers", o.layers}, {stack + "_ffn_dim", o.ffn}, {stack + "_attention_heads", 4},
                  {stack + "_sparse_step", 2}, {"max_position_embeddings", 64}});
    c.update(nlohmann::json::parse(o.config));
    return c.dump();
  }
  if (name == "DbrxForCausalLM") {
    c = {{"architectures", {name}},
         {"d_model", o.hidden},
         {"n_layers", o.layers},
         {"n_heads", 4},
         {"vocab_size", o.vocab},
         {"max_seq_len", 64},
         {"attn_config", {{"kv_n_heads", 2}, {"clip_qkv", 8.0}, {"rope_theta", 10000.0}}},
         {"ffn_config", {{"ffn_hidden_size", o.ffn}, {"moe_num_experts", o.experts}, {"moe_top_k", 2}}}};
    c.update(nlohmann::json::parse(o.config));
    return c.dump();
  }
  const bool latent = name.starts_with("Deepseek") || name == "Glm4MoeLiteForCausalLM",
             deepseek = latent || name == "Glm4MoeForCausalLM" || name == "Dots1ForCausalLM" ||
                        name == "SolarOpenForCausalLM",  // names of its keys
      mixtral = name == "MixtralForCausalLM" || name == "MiniMaxM2ForCausalLM" || name == "GptOssForCausalLM" ||
                name.starts_with("Granite") || name.starts_with("Phi") || name.starts_with("Llama4") ||
                name == "ArcticForCausalLM";
  if (name == "ArcticForCausalLM") c["moe_layer_frequency"] = 1;
  c[deepseek ? "n_routed_experts" : mixtral ? "num_local_experts" : "num_experts"] = o.experts;
  if (deepseek) {
    c["moe_intermediate_size"] = o.ffn, c["n_shared_experts"] = 1, c["first_k_dense_replace"] = 0;
    c["n_group"] = 1, c["topk_group"] = 1;
  }
  if (latent) {
    c["num_key_value_heads"] = 4;
    c["q_lora_rank"] = 24, c["kv_lora_rank"] = 20;
    c["qk_nope_head_dim"] = 8, c["qk_rope_head_dim"] = 16, c["v_head_dim"] = 12;
  }
  if (o.architecture.starts_with("Qwen")) c["moe_intermediate_size"] = o.ffn;
  if (o.architecture == "Qwen2MoeForCausalLM") c["shared_expert_intermediate_size"] = 24;
  if (name == "Ernie4_5_MoeForCausalLM") {
    c.erase("num_experts"), c.erase("num_experts_per_tok");
    c["moe_num_experts"] = o.experts, c["moe_k"] = 2, c["moe_intermediate_size"] = o.ffn;
    c["moe_num_shared_experts"] = 1, c["moe_layer_start_index"] = 0, c["tie_word_embeddings"] = false;
  }
  if (name == "GptOssForCausalLM") c["sliding_window"] = 8, c["rope_parameters"] = {{"rope_type", "default"}};
  if (name == "Qwen3NextForCausalLM" || name.starts_with("Qwen3_5")) {
    c["full_attention_interval"] = 2, c["shared_expert_intermediate_size"] = 24;
    c["linear_num_key_heads"] = 2, c["linear_num_value_heads"] = 4;
    c["linear_key_head_dim"] = 8, c["linear_value_head_dim"] = 16;
  }
  if (name == "Qwen3_5MoeForConditionalGeneration") {
    c.erase("architectures");
    c = {{"architectures", {name}}, {"text_config", c}};
  }
  if (o.tied) c["tie_word_embeddings"] = true;
  c.update(nlohmann::json::parse(o.config));
  return c.dump();
}

void write_checkpoint(const fs::path& dir, const CheckpointOptions& options) {
  fs::create_directories(dir);
  const std::string config = synthetic_config(options);
  write_text(dir / "config.json", config);
  write_text(dir / "generation_config.json", R"({"eos_token_id": 2})");
  write_text(dir / "tokenizer.json", R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2}, "merges": []}})");
  const auto model = model::describe_model(config, "");
  MOESTRO_CHECK(model.is_ok(), model.status().message());
  std::vector<Shard> shards(static_cast<size_t>(options.shards));
  nlohmann::json map;
  size_t count = 0;
  const auto add = [&](const std::string& name, const std::vector<int64_t>& shape) {
    const size_t number = count++ % shards.size();
    if (name.ends_with("_blocks") || name.ends_with("_scales"))
      add_bytes(shards[number], name, shape);
    else
      add_tensor(shards[number], options, name, shape);
    map[name] = "part-" + std::to_string(number) + ".safetensors";
  };
  for (const auto& [name, shape] : options.extra) add(name, shape);
  std::map<std::string, std::vector<int64_t>> dense;  // each once, also if it is more than one of ours
  for (const auto& t : model->dense)
    if (dense.emplace(t.source_name, t.source_shape()).second) add(t.source_name, t.source_shape());
  // An order of its own: the file's is none of the packer's business.
  for (const auto& [name, shape] : expert_tensors(*model)) add(name, shape);
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string name = options.shards == 1 ? "model.safetensors" : "part-" + std::to_string(i) + ".safetensors";
    write_safetensors(dir / name, shards[i].header.dump(), shards[i].data);
  }
  if (options.shards > 1) write_text(dir / "model.safetensors.index.json", nlohmann::json{{"weight_map", map}}.dump());
}

void write_safetensors(const fs::path& path, const std::string& header, const std::string& data) {
  const uint64_t length = header.size();
  std::string prefix(sizeof length, '\0');
  std::memcpy(prefix.data(), &length, sizeof length);
  write_text(path, prefix + header + data);
}

void write_text(const fs::path& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << text;
  MOESTRO_CHECK(out.good(), path.string());
}

std::string read_text(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::map<std::string, std::string> read_directory(const fs::path& dir) {
  std::map<std::string, std::string> files;
  if (fs::exists(dir))
    for (const auto& entry : fs::directory_iterator(dir)) {
      const std::string text = read_text(entry.path());
      files[entry.path().filename().string()] =
          std::to_string(text.size()) + " bytes, hash " + std::to_string(std::hash<std::string>{}(text));
    }
  return files;
}

}  // namespace moestro::testing
