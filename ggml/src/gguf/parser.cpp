#include "parser.h"

#include <algorithm>
#include <array>
#include <bit>
#include <new>

#include "ggml/log.h"
#include "ggml/quoted.h"
#include "value_types.h"

namespace ggml::gguf {
namespace {

constexpr std::size_t kMaxTensorName = 63;
// The smallest metadata entry: key (8), type (4), value (1). A key has at least one byte more, but an empty one shall
// be called that and not a wrong count.
constexpr std::uint64_t kMinKeyBytes = 13;
// The smallest tensor entry: name of one byte (8 + 1), dimension count (4), type (4), offset (8).
constexpr std::uint64_t kMinTensorBytes = 25;
constexpr std::uint64_t kMaxSigned = (std::uint64_t{1} << 63) - 1;

static_assert(std::endian::native == std::endian::little, "numbers are copied as they lie in the file");

/// a * b, or nothing when the product exceeds 2^63-1.
std::optional<std::uint64_t> product(std::uint64_t a, std::uint64_t b) {
  if (a != 0 && b > kMaxSigned / a) return std::nullopt;
  return a * b;
}

/// Bytes of a tensor with checked extents, or nothing when they exceed 2^63-1.
std::optional<std::uint64_t> checked_bytes(const TypeInfo& type, const Shape& shape) {
  const auto blocks = static_cast<std::uint64_t>(shape[0] / type.block_weights);
  const auto extra = static_cast<std::uint64_t>(type.row_header_bytes);
  std::optional<std::uint64_t> row = product(blocks, static_cast<std::uint64_t>(type.block_bytes));
  if (!row || *row > kMaxSigned - extra) return std::nullopt;
  const std::optional<std::uint64_t> total = product(*row + extra, static_cast<std::uint64_t>(shape.rows()));
  const auto trailer = static_cast<std::uint64_t>(type.tensor_trailer_bytes);
  if (!total || *total > kMaxSigned - trailer) return std::nullopt;
  return *total + trailer;
}

/// Why a tensor of this type cannot be read.
std::string refusal(std::uint32_t number) {
  return strf("type id %u: %s", number, std::string(why_gguf_type_is_refused(number)).c_str());
}

}  // namespace

File Parser::run() {
  try {
    const Counts counts = read_header();
    read_metadata(counts.keys);
    read_alignment();
    read_tensors(counts.tensors);
    place_tensors();
  } catch (const std::bad_alloc&) {
    in_.fail(in_.position(), "not enough memory for the header", ErrorCode::out_of_memory);
  }
  file_.shards_.push_back(std::move(shard_));
  return std::move(file_);
}

Parser::Counts Parser::read_header() {
  std::array<char, 4> magic{};
  in_.read(std::as_writable_bytes(std::span(magic)), "the magic");
  if (std::string_view(magic.data(), magic.size()) != "GGUF") {
    in_.fail(0, strf("the file starts with %s instead of 'GGUF': not a GGUF file",
                     quoted(std::string_view(magic.data(), magic.size())).c_str()));
  }
  const auto version = in_.number<std::uint32_t>("the version");
  constexpr std::uint64_t kVersionAt = 4;
  if (version == 1) {
    in_.fail(kVersionAt, "GGUF version 1 is not supported; convert the file again", ErrorCode::unsupported);
  }
  if (version != 0 && (version & 0xffff) == 0) {
    in_.fail(kVersionAt, "big-endian GGUF files are not supported; convert the file on this machine",
             ErrorCode::unsupported);
  }
  if (version != 2 && version != 3) {
    in_.fail(kVersionAt, strf("GGUF version %u is not supported; versions 2 and 3 are read", version),
             ErrorCode::unsupported);
  }
  shard_ = {in_.name(), in_.file_bytes(), 0, version, 32};

  Counts counts;
  const std::uint64_t tensors_at = in_.position();
  counts.tensors = in_.number<std::uint64_t>("the tensor count");
  const std::uint64_t keys_at = in_.position();
  counts.keys = in_.number<std::uint64_t>("the metadata count");
  if (counts.tensors > in_.remaining() / kMinTensorBytes) {
    in_.fail(tensors_at, strf("tensor count %llu is more than the %llu bytes left can hold", ull(counts.tensors),
                              ull(in_.remaining())));
  }
  if (counts.keys > in_.remaining() / kMinKeyBytes) {
    in_.fail(keys_at, strf("metadata count %llu is more than the %llu bytes left can hold", ull(counts.keys),
                           ull(in_.remaining())));
  }
  return counts;
}

void Parser::read_metadata(std::uint64_t n_keys) {
  for (std::uint64_t i = 0; i < n_keys; ++i) {
    in_.set_subject("metadata key", i + 1, n_keys);
    const std::uint64_t key_at = in_.position();
    std::string key = in_.string("the key");
    if (key.empty()) in_.fail(key_at, "the key is empty");
    in_.set_subject("metadata key", key);
    if (file_.metadata_.contains(key)) in_.fail(key_at, "the key occurs twice");
    if (key == "general.alignment") alignment_at_ = in_.position() + sizeof(std::uint32_t);
    Value value = read_value();
    if (!file_.metadata_.insert(std::move(key), std::move(value))) in_.fail(key_at, "the key occurs twice");
  }
  in_.clear_subject();
}

Value Parser::read_value() {
  const std::uint64_t type_at = in_.position();
  const auto number = in_.number<std::uint32_t>("the value type");
  if (number >= kValueTypes) {
    in_.fail(type_at, strf("value type %u does not exist (0 to %u do)", number, kValueTypes - 1));
  }
  const auto type = static_cast<ValueType>(number);
  const auto unsigned_value = [&]<class T>(T) { return Value{type, std::uint64_t{in_.number<T>("the value")}}; };
  const auto signed_value = [&]<class T>(T) { return Value{type, std::int64_t{in_.number<T>("the value")}}; };
  switch (type) {
    case ValueType::u8:
      return unsigned_value(std::uint8_t{});
    case ValueType::u16:
      return unsigned_value(std::uint16_t{});
    case ValueType::u32:
      return unsigned_value(std::uint32_t{});
    case ValueType::u64:
      return unsigned_value(std::uint64_t{});
    case ValueType::i8:
      return signed_value(std::int8_t{});
    case ValueType::i16:
      return signed_value(std::int16_t{});
    case ValueType::i32:
      return signed_value(std::int32_t{});
    case ValueType::i64:
      return signed_value(std::int64_t{});
    case ValueType::f32:
      return {type, double{in_.number<float>("the value")}};
    case ValueType::f64:
      return {type, in_.number<double>("the value")};
    case ValueType::boolean:
      return {type, in_.number<std::uint8_t>("the value") != 0};
    case ValueType::string:
      return {type, in_.string("the value")};
    case ValueType::array:
      break;
  }
  return read_array();
}

Value Parser::read_array() {
  constexpr std::uint64_t kMaxElements = std::uint64_t{1} << 30;
  constexpr std::uint64_t kMinStringBytes = 8;
  const std::uint64_t type_at = in_.position();
  const auto number = in_.number<std::uint32_t>("the element type");
  if (number == static_cast<std::uint32_t>(ValueType::array)) in_.fail(type_at, "arrays of arrays are not supported");
  if (number >= kValueTypes) {
    in_.fail(type_at, strf("element type %u does not exist (0 to %u do)", number, kValueTypes - 1));
  }
  Array array{static_cast<ValueType>(number), {}, {}};
  const std::uint64_t count_at = in_.position();
  const auto count = in_.number<std::uint64_t>("the element count");
  const bool strings = array.element == ValueType::string;
  const std::uint64_t each = strings ? kMinStringBytes : value_bytes(array.element);
  if (count > in_.remaining() / each || count > kMaxElements) {
    in_.fail(count_at, strf("an array of %llu elements of %llu bytes or more does not fit into the %llu bytes left",
                            ull(count), ull(each), ull(in_.remaining())));
  }
  in_.require(count * each, "the array");
  if (strings) {
    // Grown as they arrive: the count says 8 bytes each, a string object takes four times that.
    for (std::uint64_t i = 0; i < count; ++i) array.strings.push_back(in_.string("an array element"));
  } else {
    array.numbers.resize(static_cast<std::size_t>(count * each));
    in_.read(array.numbers, "the array");
  }
  return {ValueType::array, std::move(array)};
}

void Parser::read_alignment() {
  const Value* value = file_.metadata_.find("general.alignment");
  if (value == nullptr) return;
  in_.set_subject("metadata key", "general.alignment");
  if (value->type != ValueType::u32) {
    in_.fail(alignment_at_, strf("stored as %s, must be u32", std::string(value_type_name(value->type)).c_str()));
  }
  const std::uint64_t alignment = std::get<std::uint64_t>(value->data);
  if (!std::has_single_bit(alignment)) {
    in_.fail(alignment_at_, strf("the alignment is %llu, must be a power of two", ull(alignment)));
  }
  shard_.alignment = static_cast<std::uint32_t>(alignment);
  in_.clear_subject();
}

void Parser::read_tensors(std::uint64_t n_tensors) {
  for (std::uint64_t i = 0; i < n_tensors; ++i) {
    in_.set_subject("tensor", i + 1, n_tensors);
    read_tensor();
  }
  in_.clear_subject();
}

void Parser::read_tensor() {
  TensorInfo tensor;
  const std::uint64_t name_at = in_.position();
  tensor.name = in_.string("the tensor name");
  if (tensor.name.empty() || tensor.name.size() > kMaxTensorName) {
    in_.fail(name_at, strf("the tensor name has %zu bytes, 1 to %zu are allowed", tensor.name.size(), kMaxTensorName));
  }
  in_.set_subject("tensor", tensor.name);
  if (tensor.name.find('\0') != std::string::npos) in_.fail(name_at, "the tensor name contains a NUL byte");
  if (!file_.tensor_index_.try_emplace(tensor.name, file_.tensors_.size()).second) {
    in_.fail(name_at, "the tensor name occurs twice");
  }
  read_shape(tensor);
  read_type(tensor);
  offset_at_.push_back(in_.position());
  tensor.offset = in_.number<std::uint64_t>("the tensor offset");
  file_.tensors_.push_back(std::move(tensor));
}

void Parser::read_shape(TensorInfo& tensor) {
  const std::uint64_t dims_at = in_.position();
  const auto n_dims = in_.number<std::uint32_t>("the dimension count");
  if (n_dims > kMaxDims) in_.fail(dims_at, strf("%u dimensions, at most %d are allowed", n_dims, kMaxDims));
  tensor.n_dims = static_cast<int>(n_dims);
  std::uint64_t elements = 1;
  for (int axis = 0; axis < tensor.n_dims; ++axis) {
    const std::uint64_t extent_at = in_.position();
    const auto extent = in_.number<std::uint64_t>("a dimension");
    if (extent == 0 || extent > kMaxSigned) {
      in_.fail(extent_at, strf("dimension %d is %lld, must be at least 1", axis, static_cast<long long>(extent)));
    }
    const std::optional<std::uint64_t> next = product(elements, extent);
    if (!next) in_.fail(extent_at, strf("dimension %d of %llu makes 2^63 elements or more", axis, ull(extent)));
    elements = *next;
    tensor.shape[axis] = static_cast<std::int64_t>(extent);
  }
}

void Parser::read_type(TensorInfo& tensor) {
  const std::uint64_t type_at = in_.position();
  const auto number = in_.number<std::uint32_t>("the tensor type");
  const std::optional<DType> known = type_from_gguf(number);
  if (!known) in_.fail(type_at, refusal(number), ErrorCode::unsupported);
  tensor.type = *known;
  const TypeInfo& type = type_info(*known);
  const std::string name(type.name);
  if (tensor.shape[0] % type.block_weights != 0) {
    in_.fail(type_at, strf("rows of %lld elements are not whole blocks of %d as type %s needs",
                           static_cast<long long>(tensor.shape[0]), type.block_weights, name.c_str()));
  }
  if (tensor.shape[1] % type.rows_per_group != 0) {
    in_.fail(type_at, strf("%lld rows are not whole groups of %d as type %s needs",
                           static_cast<long long>(tensor.shape[1]), type.rows_per_group, name.c_str()));
  }
  const std::optional<std::uint64_t> bytes = checked_bytes(type, tensor.shape);
  if (!bytes) {
    in_.fail(type_at, strf("%s of type %s has 2^63 bytes or more", tensor.shape.text().c_str(), name.c_str()));
  }
  tensor.bytes = *bytes;
}

void Parser::place_tensors() {
  shard_.data_start = in_.position();
  if (file_.tensors_.empty()) return;
  const std::uint64_t alignment = shard_.alignment;
  const std::uint64_t padding = (alignment - in_.position() % alignment) % alignment;
  if (padding > in_.remaining()) {
    in_.fail(in_.position(),
             strf("with alignment %llu the tensor data start %llu bytes on, but the file ends after %llu",
                  ull(alignment), ull(padding), ull(in_.remaining())));
  }
  shard_.data_start += padding;
  const std::uint64_t data_bytes = shard_.file_bytes - shard_.data_start;
  std::uint64_t expected = 0;  // at most data_bytes + alignment: cannot wrap
  for (std::size_t i = 0; i < file_.tensors_.size(); ++i) {
    TensorInfo& tensor = file_.tensors_[i];
    in_.set_subject("tensor", tensor.name);
    if (tensor.offset % alignment != 0) {
      in_.fail(offset_at_[i],
               strf("data offset %llu is no multiple of the alignment %llu", ull(tensor.offset), ull(alignment)));
    }
    if (tensor.offset > data_bytes || tensor.bytes > data_bytes - tensor.offset) {
      in_.fail(offset_at_[i], strf("%llu bytes at data offset %llu run past the %llu bytes of data in the file; it is "
                                   "cut off or damaged",
                                   ull(tensor.bytes), ull(tensor.offset), ull(data_bytes)));
    }
    if (tensor.offset != expected) {
      in_.fail(offset_at_[i],
               strf("data offset %llu, but the tensors before it end at %llu (they must follow each other "
                    "without gap or overlap)",
                    ull(tensor.offset), ull(expected)));
    }
    expected += tensor.bytes + (alignment - tensor.bytes % alignment) % alignment;
    tensor.offset += shard_.data_start;
  }
  in_.clear_subject();
}

}  // namespace ggml::gguf
