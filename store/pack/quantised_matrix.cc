#include "store/pack/quantised_matrix.h"

#include <algorithm>
#include <array>

#include "common/expert_layout.h"
#include "common/model/strict_json.h"
#include "store/pack/matrix_numbers.h"
#include "store/pack/quantised_dialects.h"

namespace moestro::store {
namespace {

using model::in_quotes;
using model::Quantisation;
using Shape = std::vector<int64_t>;

/// Finds the tensors of one matrix, and takes them out of the checkpoint's.
class Assembler {
 public:
  Assembler(const Quantisation& quantisation, const std::string& name, const Shape& shape, const ReadTensor& read,
            SourceTensors& tensors)
      : quantisation_(quantisation), name_(name), shape_(shape), read_(read), tensors_(tensors), cols_(shape.back()) {
    for (size_t i = 0; i + 1 < shape.size(); ++i) rows_ *= shape[i];
    if (name.ends_with(".weight")) base_ = name.substr(0, name.size() - std::string("weight").size());
  }

  Status assemble() {
    using Method = Quantisation::Method;
    switch (quantisation_.method) {
      case Method::kNone: break;
      case Method::kMxfp4: return mxfp4();
      case Method::kFp8: return fp8();
      case Method::kGptq: return gptq();
      case Method::kAwq: return awq();
      case Method::kPackedInt4: return packed_int4();
      case Method::kNvfp4: return nvfp4();
    }
    return Status::ok();
  }

 private:
  Status mxfp4() {
    // All stacked experts, and nothing else: plain ones would lie the other way round.
    if (shape_.size() < 3) return Status::ok();
    constexpr int64_t kGroup = 32;
    Shape groups = shape_;
    groups.back() /= kGroup;
    auto scales = take(name_ + "_scales", groups, {"U8"});
    groups.push_back(kGroup / 2);
    auto blocks = take(name_ + "_blocks", groups, {"U8"});
    return put(mxfp4_matrix(matrix(), std::move(blocks), std::move(scales)));
  }

  Status fp8() {
    const auto found = tensors_.find(name_);
    if (base_.empty() || found == tensors_.end() || found->second.format != "F8_E4M3") return Status::ok();
    const std::string scale_name =
        has(base_ + "weight_scale_inv") || !has(base_ + "weight_scale") ? "weight_scale_inv" : "weight_scale";
    int64_t block_rows = quantisation_.block_rows, block_cols = quantisation_.block_cols;
    const bool by_block = block_rows > 0 && block_cols > 0;
    std::vector<Shape> allowed = {{}, {1}, {1, 1}, {rows_, 1}, {rows_}};
    if (by_block) allowed = {{ceil_div(rows_, block_rows), ceil_div(cols_, block_cols)}};
    auto scales = take_any(base_ + scale_name, allowed, {"F32", "BF16", "F16", "F8_E8M0"});
    if (!by_block) {
      block_rows = scales.shape.empty() || scales.shape.front() != rows_ ? rows_ : 1;
      block_cols = cols_;
    }
    auto values = take(name_, shape_, {"F8_E4M3"});
    const DType dtype = cols_ % 128 == 0 && block_cols % 128 == 0 ? DType::kFP8 : DType::kFP8G32;
    if (cols_ % 32 != 0) refuse_width("FP8");
    return put(fp8_matrix(matrix(), dtype, std::move(values), std::move(scales), block_rows, block_cols));
  }

  Status gptq() {
    if (!has_any_of({"qweight", "qzeros"})) return Status::ok();
    auto words = take(base_ + "qweight", {cols_ / kInWord, rows_}, {"I32"});
    auto zeros = take(base_ + "qzeros", {groups(), rows_ / kInWord}, {"I32"});
    auto scales = take(base_ + "scales", {groups(), rows_}, {"F16", "BF16"});
    std::vector<int32_t> groups_of;
    if (quantisation_.needs_order || has(base_ + "g_idx"))
      MOESTRO_RETURN_IF_ERROR(read_order(take(base_ + "g_idx", {cols_}, {"I32"}), groups_of));
    else
      check_whole_groups();
    Int4Tensors t{std::move(words), std::move(scales), std::move(zeros)};
    const GptqZeros form = quantisation_.gptq_zeros;
    if (!groups_of.empty()) {
      check_words_of_rows();
      if (cols_ % kInWord != 0) refuse_width("4 bits", kInWord);
      return put(ordered_gptq_matrix(matrix(), std::move(groups_of), std::move(t), form));
    }
    return put(gptq_matrix(matrix(), int4_format(true), group(), std::move(t), form));
  }

  /// The group of each column; empty if they follow one another, as without act-order. In any order, each group has as
  /// many columns as it is long. Without act-order some files have nothing but zeros, which means the same as no index.
  Status read_order(const SourceTensor& tensor, std::vector<int32_t>& groups_of) {
    if (!error_.is_ok()) return error_;
    groups_of.resize(static_cast<size_t>(cols_));
    MOESTRO_RETURN_IF_ERROR(read_(tensor, 0, std::as_writable_bytes(std::span(groups_of))));
    if (!quantisation_.needs_order && std::ranges::all_of(groups_of, [](int32_t g) { return g == 0; })) {
      groups_of.clear();
      check_whole_groups();
      return Status::ok();
    }
    const std::string label = "tensor " + in_quotes(tensor.name);
    std::vector<int64_t> columns(static_cast<size_t>(groups()));
    bool in_order = true;
    for (int64_t c = 0; c < cols_; ++c) {
      const int64_t g = groups_of[static_cast<size_t>(c)];
      if (g < 0 || g >= groups())
        return invalid_argument(label + " says that column " + std::to_string(c) + " is of group " + std::to_string(g) +
                                "; there are " + std::to_string(groups()));
      ++columns[static_cast<size_t>(g)];
      in_order = in_order && g == c / group();
    }
    for (int64_t g = 0; g < groups(); ++g) {
      const int64_t has = columns[static_cast<size_t>(g)], wanted = std::min(group(), cols_ - g * group());
      if (has != wanted)
        return invalid_argument(label + " says that " + std::to_string(has) + " columns are of group " +
                                std::to_string(g) + "; by group_size it has " + std::to_string(wanted) +
                                ": the order of columns was not saved right, so take another file of the model");
    }
    if (in_order) groups_of.clear();
    return Status::ok();
  }

  Status awq() {
    if (!has_any_of({"qweight", "qzeros"})) return Status::ok();
    check_whole_groups();
    auto words = take(base_ + "qweight", {cols_, rows_ / kInWord}, {"I32"});
    auto zeros = take(base_ + "qzeros", {groups(), rows_ / kInWord}, {"I32"});
    auto scales = take(base_ + "scales", {groups(), rows_}, {"F16", "BF16"});
    return put(awq_matrix(matrix(), int4_format(true), group(),
                          {std::move(words), std::move(scales), std::move(zeros)}));
  }

  Status packed_int4() {
    if (!has_any_of({"weight_packed"})) return Status::ok();
    check_whole_groups();
    auto words = take(base_ + "weight_packed", {rows_, cols_ / kInWord}, {"I32"});
    auto scales = take(base_ + "weight_scale", {rows_, groups()}, {"F16", "BF16"});
    std::optional<SourceTensor> zeros;
    if (!quantisation_.symmetric)
      zeros = take(base_ + "weight_zero_point", {ceil_div(rows_, kInWord), groups()}, {"I32"});
    if (has(base_ + "weight_shape"))
      MOESTRO_RETURN_IF_ERROR(check_shape(take(base_ + "weight_shape", {2}, {"I64", "I32"})));
    if (has(base_ + "weight_g_idx"))
      refuse(unsupported("tensor " + in_quotes(base_ + "weight_g_idx") +
                         " orders columns by activation (actorder group), which is not supported: take a checkpoint "
                         "without it, or pack the unquantised one with --experts int4"));
    return put(packed_int4_matrix(matrix(), int4_format(false), group(),
                                  {std::move(words), std::move(scales), std::move(zeros)}));
  }

  /// What the matrix was before its numbers were packed.
  Status check_shape(const SourceTensor& tensor) {
    if (!error_.is_ok()) return error_;
    std::vector<std::byte> bytes(tensor.bytes);
    MOESTRO_RETURN_IF_ERROR(read_(tensor, 0, bytes));
    Shape said;
    for (int64_t i = 0; i < 2; ++i)
      said.push_back(tensor.format == "I64" ? number_at<int64_t>(bytes, i) : number_at<int32_t>(bytes, i));
    if (said == Shape{rows_, cols_}) return Status::ok();
    return invalid_argument("tensor " + in_quotes(tensor.name) + " says " + shape_text(said) + "; by config.json " +
                            in_quotes(name_) + " is " + shape_text({rows_, cols_}) +
                            ": the checkpoint is damaged or of another model");
  }

  Status nvfp4() {
    const auto found = tensors_.find(name_);
    const bool modelopt = found != tensors_.end() && found->second.format == "U8";
    if (base_.empty() || (!modelopt && !has(base_ + "weight_packed"))) return Status::ok();
    auto values = take(modelopt ? name_ : base_ + "weight_packed", {rows_, cols_ / 2}, {"U8"});
    auto scales = take(base_ + "weight_scale", {rows_, cols_ / 16}, {"F8_E4M3"});
    auto whole = take_any(base_ + (modelopt ? "weight_scale_2" : "weight_global_scale"), {{}, {1}}, {"F32"});
    if (cols_ % block_shape(DType::kNVFP4).columns != 0) refuse_width("NVFP4", block_shape(DType::kNVFP4).columns);
    return put(nvfp4_matrix(matrix(), std::move(values), std::move(scales), std::move(whole), !modelopt));
  }

  bool has(const std::string& name) const { return tensors_.contains(name); }
  bool has_any_of(std::initializer_list<const char*> ends) const {
    return !base_.empty() && std::ranges::any_of(ends, [&](const char* end) { return has(base_ + end); });
  }

  int64_t group() const { return quantisation_.group == 0 ? cols_ : quantisation_.group; }
  int64_t groups() const { return ceil_div(cols_, group()); }
  /// Another size may have as many groups, and the wrong scale for every number.
  void check_whole_groups() {
    if (cols_ > group() && cols_ % group() != 0)
      refuse(invalid_argument("tensor " + in_quotes(name_) + " has " + std::to_string(cols_) +
                              " columns, which groups of " + std::to_string(group()) +
                              " do not divide; config.json's group_size is not theirs"));
  }
  void check_words_of_rows() {
    if (rows_ % kInWord != 0)
      refuse(unsupported("tensor " + in_quotes(name_) + " has " + std::to_string(rows_) +
                         " rows; 4 bits are read of multiples of 8"));
  }
  /// The widest blocks of which groups and rows are whole ones.
  DType int4_format(bool by_words_of_rows) {
    if (by_words_of_rows) check_words_of_rows();
    for (const DType d : {DType::kInt4G128, DType::kInt4G64, DType::kInt4G32})
      if (group() % block_shape(d).columns == 0 && cols_ % block_shape(d).columns == 0) return d;
    refuse_width("4 bits");
    return DType::kInt4G32;
  }

  void refuse(Status error) {
    if (error_.is_ok()) error_ = std::move(error);
  }
  void refuse_width(const std::string& what, int64_t columns = 32) {
    refuse(unsupported("tensor " + in_quotes(name_) + " has " + std::to_string(cols_) + " columns; " + what +
                       " is read of multiples of " + std::to_string(columns)));
  }
  SourceTensor take(const std::string& name, const Shape& shape, std::initializer_list<const char*> formats) {
    return take_any(name, {shape}, formats);
  }
  /// An empty tensor after an error.
  SourceTensor take_any(const std::string& name, const std::vector<Shape>& shapes,
                        std::initializer_list<const char*> formats) {
    const auto found = tensors_.find(name);
    const std::string label = "tensor " + in_quotes(name);
    if (found == tensors_.end()) {
      refuse(invalid_argument(label + " is missing; by quantization_config in config.json " + in_quotes(name_) +
                              " is quantised"));
      return {};
    }
    SourceTensor tensor = found->second;
    if (std::ranges::find(shapes, tensor.shape) == shapes.end())
      refuse(invalid_argument(label + " has shape " + shape_text(tensor.shape) + "; by config.json it is " +
                              shape_text(shapes.back())));
    if (std::ranges::none_of(formats, [&](const char* f) { return tensor.format == f; })) {
      std::string names;
      for (const char* f : formats) names += (names.empty() ? "" : ", ") + std::string(f);
      refuse(unsupported(label + " is " + tensor.format + "; it is read as " + names));
    }
    taken_.push_back(name);
    return tensor;
  }

  MatrixName matrix() const { return {name_, rows_, cols_}; }
  Status put(Quantised matrix) {
    if (!error_.is_ok()) return error_;
    for (const std::string& name : taken_) tensors_.erase(name);
    if (has(name_))
      return invalid_argument("both tensor " + in_quotes(name_) + " and its quantised form, " +
                              in_quotes(taken_.front()) + ", are there; remove one");
    SourceTensor whole{name_, std::string(dtype_name(matrix->dtype())), matrix->dtype(), shape_};
    whole.bytes = static_cast<uint64_t>(rows_ * row_bytes(matrix->dtype(), cols_));
    whole.matrix = std::move(matrix);
    tensors_.emplace(name_, std::move(whole));
    return Status::ok();
  }

  const Quantisation& quantisation_;
  const std::string& name_;
  const Shape& shape_;
  const ReadTensor& read_;
  SourceTensors& tensors_;
  std::string base_;  ///< "NAME." of NAME.weight; empty: it has another name
  int64_t rows_ = 1, cols_;
  std::vector<std::string> taken_;
  Status error_;
};

}  // namespace

Status QuantisedMatrix::read_bytes(const ReadTensor& read, uint64_t first, std::span<std::byte> out) const {
  const BlockShape shape = block_shape(dtype_);
  const int64_t across = cols_ / shape.columns;
  int64_t block = static_cast<int64_t>(first) / shape.bytes;
  MOESTRO_CHECK(static_cast<int64_t>(first) % shape.bytes == 0 && std::ssize(out) % shape.bytes == 0, "whole blocks");
  // The end of a row, whole rows, and the beginning of one.
  for (int64_t left = std::ssize(out) / shape.bytes; left > 0;) {
    const int64_t at = block % across, rows = at == 0 && left >= across ? left / across : 1,
                  blocks = rows > 1 || left >= across - at ? across - at : left;
    MOESTRO_RETURN_IF_ERROR(
        read_range(read, {block / across, rows, at * shape.columns, blocks * shape.columns}, out.data()));
    const int64_t done = rows * blocks;
    block += done, left -= done;
    out = out.subspan(static_cast<size_t>(done * shape.bytes));
  }
  return Status::ok();
}

Status assemble_matrix(const Quantisation& quantisation, const std::string& name, const Shape& shape,
                       const ReadTensor& read, SourceTensors& tensors) {
  return Assembler(quantisation, name, shape, read, tensors).assemble();
}

bool is_scale_of_activations(std::string_view name) {
  return std::ranges::any_of(
      std::array{".input_scale", ".input_global_scale", ".input_zero_point", ".activation_scale", ".output_scale",
                 ".output_zero_point", ".q_scale", ".k_scale", ".k_zero_point", ".v_scale", ".v_zero_point",
                 ".kv_scale"},
      [&](const char* end) { return name.ends_with(end); });
}

}  // namespace moestro::store
