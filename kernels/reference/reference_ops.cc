#include "kernels/reference/reference_ops.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "common/float16.h"
#include "common/formats/blocks.h"

namespace moestro::kernels::reference {

double value_at(const void* data, DType dtype, int64_t i) {
  switch (dtype) {
    case DType::kF32:
      return static_cast<const float*>(data)[i];
    case DType::kBF16:
      return bf16_to_f32(static_cast<const uint16_t*>(data)[i]);
    case DType::kF16:
      return f16_to_f32(static_cast<const uint16_t*>(data)[i]);
    default:
      break;
  }
  MOESTRO_CHECK(false, "values with parameters: see weight_at");
}

/// The layout of common/expert_layout.h: byte b of a group holds columns b % 16 + 32 * (b / 16), and 16 more in the
/// high half.
static int int4_at(const std::byte* row, int64_t col) {
  const int64_t within = col % kQuantGroup;
  const auto byte = static_cast<unsigned>(row[col / kQuantGroup * (kQuantGroup / 2) + within / 32 * 16 + within % 16]);
  return static_cast<int>(within % 32 < 16 ? byte & 15u : byte >> 4);
}

static std::vector<double> bf16_in_12_numbers(const Weight& w) {
  const auto exponents = bf16_in_12::read_exponents(reinterpret_cast<const std::byte*>(w.parameters), w.rows * w.cols);
  std::vector<uint16_t> values;
  for (int64_t row = 0; row < w.rows; ++row)
    for (int64_t col = 0; col < w.cols; ++col)
      values.push_back(bf16_in_12::value_at(static_cast<const std::byte*>(w.data) + row * row_bytes(w.dtype, w.cols),
                                            exponents.of_code, col));
  for (int64_t i = 0; i < exponents.count; ++i) {
    uint16_t& value = values[static_cast<size_t>(bf16_in_12::exception_position(exponents, i))];
    value = bf16_in_12::with_exponent(value, exponents.exceptions[i]);
  }
  std::vector<double> numbers(values.size());
  std::transform(values.begin(), values.end(), numbers.begin(), bf16_to_f32);
  return numbers;
}

static double block_value_at(const Weight& w, int64_t row, int64_t col) {
  const BlockShape shape = block_shape(w.dtype);
  float values[256];
  const auto* block = static_cast<const std::byte*>(w.data) + row * row_bytes(w.dtype, w.cols) +
                      col / shape.columns * shape.bytes;
  formats::dequantise(w.dtype, block, shape.columns, values);
  return static_cast<double>(values[col % shape.columns]);
}

double weight_at(const Weight& w, int64_t row, int64_t col) {
  if (w.dtype == DType::kBF16In12) return bf16_in_12_numbers(w)[static_cast<size_t>(row * w.cols + col)];
  if (is_blocks(w.dtype)) return block_value_at(w, row, col);
  if (!is_quantised(w.dtype)) return value_at(w.data, w.dtype, row * w.cols + col);
  const uint16_t* parameters =
      w.parameters + (row * quant_groups(w.cols) + col / kQuantGroup) * group_parameters(w.dtype);
  const double scale = bf16_to_f32(parameters[0]);
  if (w.dtype == DType::kInt8) return static_cast<const int8_t*>(w.data)[row * w.cols + col] * scale;
  return int4_at(static_cast<const std::byte*>(w.data) + row * row_bytes(w.dtype, w.cols), col) * scale +
         static_cast<double>(bf16_to_f32(parameters[1]));
}

std::vector<double> numbers_of(const Weight& w) {
  if (w.dtype == DType::kBF16In12) return bf16_in_12_numbers(w);
  std::vector<double> numbers(static_cast<size_t>(w.rows * w.cols));
  if (is_blocks(w.dtype)) {
    std::vector<float> values(numbers.size());
    formats::dequantise(w.dtype, static_cast<const std::byte*>(w.data), w.rows * w.cols, values.data());
    std::copy(values.begin(), values.end(), numbers.begin());
    return numbers;
  }
  for (size_t i = 0; i < numbers.size(); ++i)
    numbers[i] = weight_at(w, static_cast<int64_t>(i) / w.cols, static_cast<int64_t>(i) % w.cols);
  return numbers;
}

double silu(double x) {
  return x / (1.0 + std::exp(-x));
}

std::vector<Eight> side_by_side(const float* x, int64_t rows, int64_t dim) {
  std::vector<Eight> columns(static_cast<size_t>(dim));
  for (int64_t r = 0; r < rows; ++r)
    for (Eight& column : columns) column[static_cast<size_t>(r)] = *x++;
  return columns;
}

void ReferenceOps::matmul(const float* x, int64_t n, const Weight& w, const float* bias, float* y, Activations) {
  const std::vector<double> numbers = numbers_of(w);
  for (int64_t first = 0; first < n; first += 8) {
    const int64_t tokens = std::min<int64_t>(8, n - first);
    const std::vector<Eight> columns = side_by_side(x + first * w.cols, tokens, w.cols);
    for (int64_t r = 0; r < w.rows; ++r) {
      const Eight sums = add_products({}, columns, numbers.data() + r * w.cols);
      for (int64_t t = 0; t < tokens; ++t)
        y[(first + t) * w.rows + r] = static_cast<float>(sums[static_cast<size_t>(t)] + (bias ? bias[r] : 0.0));
    }
  }
}

void ReferenceOps::gather_rows(const Weight& table, std::span<const int32_t> ids, float* y) {
  const std::vector<double> numbers = numbers_of(table);
  for (const int32_t id : ids) {
    MOESTRO_CHECK(id >= 0 && id < table.rows, "row of a table");
    const double* row = numbers.data() + id * table.cols;
    for (int64_t c = 0; c < table.cols; ++c) *y++ = static_cast<float>(row[c]);
  }
}

void ReferenceOps::rms_norm(const float* x, int64_t n, int64_t dim, const float* weight, float eps,
                            float* y) {
  for (int64_t t = 0; t < n; ++t, x += dim, y += dim) {
    double squares = 0.0;
    for (int64_t i = 0; i < dim; ++i) squares += static_cast<double>(x[i]) * x[i];
    const double scale = 1.0 / std::sqrt(squares / static_cast<double>(dim) + eps);
    for (int64_t i = 0; i < dim; ++i) y[i] = static_cast<float>(x[i] * scale * weight[i]);
  }
}

void ReferenceOps::layer_norm(const float* x, int64_t n, int64_t dim, const float* weight, const float* bias, float eps,
                              float* y) {
  const auto count = static_cast<double>(dim);
  for (int64_t t = 0; t < n; ++t, x += dim, y += dim) {
    double sum = 0.0, squares = 0.0;
    for (int64_t i = 0; i < dim; ++i) sum += x[i];
    const double mean = sum / count;
    for (int64_t i = 0; i < dim; ++i) squares += (x[i] - mean) * (x[i] - mean);
    const double scale = 1.0 / std::sqrt(squares / count + eps);
    for (int64_t i = 0; i < dim; ++i)
      y[i] = static_cast<float>((x[i] - mean) * scale * weight[i] + (bias ? bias[i] : 0.0f));
  }
}

void ReferenceOps::sum_squares(const float* x, int64_t n, int64_t dim, float* sums) {
  for (int64_t t = 0; t < n; ++t, x += dim) {
    double squares = 0.0;
    for (int64_t i = 0; i < dim; ++i) squares += static_cast<double>(x[i]) * x[i];
    sums[t] = static_cast<float>(squares);
  }
}

void ReferenceOps::rope(float* x, int64_t n, int64_t heads, int64_t head_dim, int64_t rotary_dim,
                        const float* cos, const float* sin) {
  const int64_t half = rotary_dim / 2;
  for (int64_t t = 0; t < n; ++t) {
    for (int64_t h = 0; h < heads; ++h) {
      float* head = x + (t * heads + h) * head_dim;
      for (int64_t j = 0; j < half; ++j) {
        const double c = cos[t * half + j], s = sin[t * half + j], a = head[j], b = head[j + half];
        head[j] = static_cast<float>(a * c - b * s);
        head[j + half] = static_cast<float>(b * c + a * s);
      }
    }
  }
}

void ReferenceOps::combine(const float* rows, const float* weights, int64_t n, int64_t top_k, int64_t hidden,
                           float* y) {
  for (int64_t t = 0; t < n; ++t) {
    for (int64_t i = 0; i < hidden; ++i) {
      double sum = 0.0;
      for (int64_t r = 0; r < top_k; ++r)
        sum += static_cast<double>(weights[t * top_k + r]) * rows[(t * top_k + r) * hidden + i];
      y[t * hidden + i] = static_cast<float>(y[t * hidden + i] + sum);
    }
  }
}

void ReferenceOps::silu_mul(float* gate, const float* up, int64_t count) {
  for (int64_t i = 0; i < count; ++i) gate[i] = static_cast<float>(silu(gate[i]) * up[i]);
}

void ReferenceOps::exponentials(const float* x, int64_t count, float shift, float factor, float* y) {
  for (int64_t i = 0; i < count; ++i) {
    const double e = std::exp((static_cast<double>(x[i]) - static_cast<double>(shift)) * static_cast<double>(factor));
    y[i] = e < 2e-38 ? 0.0f : static_cast<float>(e);
  }
}

void ReferenceOps::add_scaled(const float* x, const float* logit, int64_t n, int64_t dim, float* y) {
  for (int64_t t = 0; t < n; ++t) {
    const double scale = logit ? 1.0 / (1.0 + std::exp(-static_cast<double>(logit[t]))) : 1.0;
    for (int64_t i = t * dim; i < (t + 1) * dim; ++i) y[i] = static_cast<float>(y[i] + scale * x[i]);
  }
}

void ReferenceOps::scale(float* x, int64_t count, float factor) {
  for (int64_t i = 0; i < count; ++i) x[i] *= factor;
}

void ReferenceOps::clamp(float* x, int64_t count, float limit) {
  for (int64_t i = 0; i < count; ++i) x[i] = std::clamp(x[i], -limit, limit);
}

}  // namespace moestro::kernels::reference

namespace moestro::kernels {
std::unique_ptr<Ops> make_reference_ops() {
  return std::make_unique<reference::ReferenceOps>();
}
}  // namespace moestro::kernels
